"""Sharing: executables whose resident weights others can read, too."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from volumetric.runtime.device import Executable
from volumetric.runtime.plan import Plan
from volumetric.weights import Params


@runtime_checkable
class Sharing(Protocol):
    """An executable whose weights others can read, too."""

    def beside(self, plan: Plan, params: Params) -> Executable:
        """Compile another plan with the same options, as `Device.compile` does.

        Matrices that both have of the very same stores are in memory once, as long as either is open; neither can
        replace them (`Updatable.update`) from then on.
        """
        ...
