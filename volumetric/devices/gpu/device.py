"""GpuDevice: opens an adapter and compiles plans for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.adapters import choose_adapter, describe, ranked_adapters
from volumetric.devices.gpu.gpu_context import GpuContext
from volumetric.devices.gpu.implementation_choice import choose_implementation, measure_implementation
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.devices.gpu.row_limits import UNLIMITED, CallLimits
from volumetric.run.device import DeviceInfo, RunOptions
from volumetric.run.graph.network_graph import GROUPED, NATIVE
from volumetric.run.plan import Plan
from volumetric.run.regroup import regroup_params

if TYPE_CHECKING:
    from volumetric.devices.gpu.executable import GpuExecutable
    from volumetric.devices.gpu.graph import GpuGraphs
    from volumetric.network import Network, Params
    from volumetric.run.streams import RowStream, S, Streamable


C = TypeVar("C", bound=GpuContext)


class GpuCompiler(Generic[C]):
    """Compiles plans and graphs for one GPU.

    Parameters
    ----------
    context : the GPU, open or recorded
    limits : most rows of calls of executables

    Attributes
    ----------
    native_schemes : schemes that are executed as stored; all others are converted to float32
    native_operations : row operations with kernels on packed weights and states
    """

    native_schemes: tuple[str, ...] = tuple(FORMATS)
    native_operations: frozenset[str] = NATIVE | GROUPED

    def __init__(self, context: C, limits: CallLimits = UNLIMITED) -> None:
        self.context: C = context
        self.limits: CallLimits = limits

    def compile(self, plan: Plan, params: Params, options: RunOptions | None = None) -> GpuExecutable:
        """Bind `plan` (as `lower` wrote it) to resident copies of `params`.

        Row operations run on packed weights; segments between them in float32.

        Raises
        ------
        DeviceError : the weights or the scratch memory exceed the GPU
        UnsupportedError : an option has no GPU implementation, or weights are of a 64-bit type
        """
        from volumetric.devices.gpu.executable import GpuExecutable

        options = options or RunOptions()
        if options.compute == "bfloat16":
            raise UnsupportedError(
                "the GPU has no products of bfloat16 activations", hint="use compute='float32' or device='cpu'"
            )
        check_integer_width(plan, params)
        native = regroup_params(params, self.native_schemes)
        return GpuExecutable(
            self.context, plan, self.native_operations, native, options, sources=params, limits=self.limits
        )

    def stream(self, machine: Network | Streamable[S], params: Params, *, batch: int = 1) -> RowStream | S:
        """Return `batch` streams: see `volumetric.run.streams`."""
        from volumetric.run.streams import open_stream

        return open_stream(self, machine, params, batch=batch)

    def graphs(self) -> GpuGraphs:
        """Return the compiler of tensor graphs for this GPU."""
        from volumetric.devices.gpu.graph import GpuGraphs

        return GpuGraphs(self.context)


class GpuDevice(GpuCompiler[OpenGpu]):
    """A GPU, opened.

    Parameters
    ----------
    selector : ``"1"`` (index in `list_gpus`) or part of the adapter's name such as ``"llvmpipe"``; None: the best one
    narrow : fields of `devices.gpu.kernels.dispatch.Caps` to lower below the adapter's: tests use it to cover the paths
        of weaker devices

    Raises
    ------
    DeviceError : no such GPU, or it cannot be opened
    """

    def __init__(self, selector: str | None = None, *, narrow: Mapping[str, Any] | None = None) -> None:
        adapters = ranked_adapters()
        index = choose_adapter(adapters, selector)
        adapter = adapters[index]
        chosen = choose_implementation(adapter, measure=measure_implementation)
        super().__init__(OpenGpu(adapter, chosen.name, narrow))
        info = describe(adapter, index, chosen.name, chosen.reason)
        measured = {
            "neighbouring_lanes": self.context.caps.subgroup_size,
            "loop_rounds": self.context.caps.max_rounds or "no end found",
        }
        self._info = replace(info, details={**info.details, **measured})

    @property
    def info(self) -> DeviceInfo:
        """Name, limits and features of the device."""
        return self._info


def check_integer_width(plan: Plan, params: Params) -> None:
    """Raise `UnsupportedError` if a weight is of a 64-bit type: WGSL has none, and float32 would lose digits."""
    for key in plan.params:
        dtype = params[key].scheme.dtype
        if dtype.bits > 32:
            raise UnsupportedError(
                f"{key} is stored as {dtype}, and GPUs have no 64-bit numbers here",
                hint='convert it with load(…, dtype="float32") or network.morph(params, "float32"), or use the cpu',
            )
