"""GpuDevice: opens an adapter and compiles plans for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from volumetric.kernels.gpu.formats import FORMATS
from volumetric.runtime.device import DeviceInfo, RunOptions
from volumetric.runtime.gpu.adapters import choose, describe, ranked_adapters
from volumetric.runtime.gpu.context import GpuContext
from volumetric.runtime.plan import Plan

if TYPE_CHECKING:
    from volumetric.network import Params
    from volumetric.runtime.gpu.executable import GpuExecutable
    from volumetric.runtime.gpu.graph import GpuGraphs


class GpuDevice:
    """A GPU, opened.

    Parameters
    ----------
    selector : ``"1"`` (index in `list_gpus`) or part of the adapter's name such as ``"llvmpipe"``; None: the best one
    narrow : fields of `volumetric.kernels.gpu.dispatch.Caps` to lower below what the adapter offers: tests use it to
        run the paths of lesser devices

    Attributes
    ----------
    native_schemes : schemes that are executed as stored; all others become float32 when made resident

    Raises
    ------
    DeviceError : no such GPU, or it cannot be opened
    """

    native_schemes = tuple(FORMATS)

    def __init__(self, selector: str | None = None, *, narrow: Mapping[str, Any] | None = None) -> None:
        adapters = ranked_adapters()
        index = choose(adapters, selector)
        self._info = describe(adapters[index], index)
        self.context = GpuContext(adapters[index], narrow)

    @property
    def info(self) -> DeviceInfo:
        """What the device is and can do."""
        return self._info

    def compile(self, plan: Plan, params: Params, options: RunOptions) -> GpuExecutable:
        """Bind `plan` (as `lower` wrote it) to resident copies of `params`.

        Raises
        ------
        DeviceError : the weights or the scratch memory exceed the GPU
        UnsupportedError : the plan or the options hold something that has no GPU form
        """
        from volumetric.runtime.fuse import fuse
        from volumetric.runtime.gpu.executable import GpuExecutable

        return GpuExecutable(self.context, fuse(plan), params, options)

    def graphs(self) -> GpuGraphs:
        """Return what compiles tensor graphs for this GPU."""
        from volumetric.runtime.gpu.graph import GpuGraphs

        return GpuGraphs(self.context)
