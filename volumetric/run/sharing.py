"""What else executables may do with resident weights: let others use them, and replace them between calls."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from volumetric.network.weights import Params
from volumetric.run.device import Executable
from volumetric.run.plan import Plan


@runtime_checkable
class Sharing(Protocol):
    """An executable whose weights others can use, too."""

    def beside(self, plan: Plan, params: Params) -> Executable:
        """Compile another plan with the same options, as `Device.compile` does.

        Matrices that both have of the very same stores are in memory once, as long as either is open; neither can
        replace them (`Updatable.update`) from then on. The plan declares the same states, and states of either serve
        both.
        """
        ...


@runtime_checkable
class Updatable(Protocol):
    """An executable whose resident weights can be replaced between calls.

    They are what programs between operations on rows read, as which nodes of a fabric live, and float32 matrices.
    """

    def update(self, params: Params) -> None:
        """Replace tensors by others of the same shapes; states stay as they are.

        Parameters
        ----------
        params : the tensors to replace, by their keys; float32

        Raises
        ------
        ShapeError : a tensor has another shape than the resident one, or there is none of its key
        """
        ...
