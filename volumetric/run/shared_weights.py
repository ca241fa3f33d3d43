"""Optional features of executables: sharing of resident weights, and replacing them between calls."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from volumetric.network.weight_store import Params
from volumetric.run.device import Executable
from volumetric.run.plan import Plan


@runtime_checkable
class SharesWeights(Protocol):
    """An executable whose weights other executables can share."""

    def compile_sharing(self, plan: Plan, params: Params) -> Executable:
        """Compile another plan with the same options, sharing weights; see `Device.compile`.

        Matrices from the same weight stores are in memory once, as long as either executable is open; neither can
        replace them (`Updatable.update`) afterwards. The plan must declare the same states; both executables can use
        states of either.
        """
        ...


@runtime_checkable
class Updatable(Protocol):
    """An executable whose resident weights can be replaced between calls.

    These are the parameters of programs between fused row operations, such as the masks of fabrics, and float32
    matrices.
    """

    def update(self, params: Params) -> None:
        """Replace tensors by others of the same shapes; states are unchanged.

        Parameters
        ----------
        params : key → new float32 tensor

        Raises
        ------
        ShapeError : a tensor has another shape than the resident one, or a key is unknown
        """
        ...
