"""Lowered form of a tensor graph's operation on a GPU: launches of shaders over its inputs, outputs and scratch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from volumetric.base._typing import Shape
from volumetric.base.errors import UnsupportedError
from volumetric.base.moved_modules import moved_names_getattr
from volumetric.devices.gpu.kernels.dispatch import Caps, Constant, Dispatch, WorkgroupGrid, ceil_div
from volumetric.devices.gpu.kernels.row_predicate import NONE, PARTS
from volumetric.graph.ops import ProductType

WORKGROUP = 256


class BufferRef(NamedTuple):
    """A buffer of an operation: its input, output or scratch buffer number `number`."""

    place: Literal["input", "output", "scratch", "guard"]
    number: int


def source(index: int) -> BufferRef:
    """Input number `index`."""
    return BufferRef("input", index)


def result(index: int = 0) -> BufferRef:
    """Output number `index`."""
    return BufferRef("output", index)


def scratch(index: int) -> BufferRef:
    """Scratch buffer number `index`."""
    return BufferRef("scratch", index)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringRequest:
    """An operation to lower: the shapes of its inputs and outputs, and its attributes.

    Attributes
    ----------
    integers : which inputs are int32
    read_outputs : which outputs are read; empty: all
    products : see `Graph.products`
    """

    op: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    attrs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    integers: tuple[bool, ...] = ()
    read_outputs: tuple[bool, ...] = ()
    caps: Caps = field(default_factory=Caps)
    products: ProductType = "float32"

    def size(self, index: int = 0) -> int:
        """Elements of an input."""
        return prod(self.inputs[index])

    @property
    def out_size(self) -> int:
        """Elements of the first output."""
        return prod(self.outputs[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """One dispatch.

    Attributes
    ----------
    buffers : the shader's names of its storage buffers → their references
    dims : contents of the shader's uniform ``dims``, words of 32 bits: ints and floats
    unless_same : two buffers; if they are one, the launch (a copy) is omitted
    """

    dispatch: Dispatch
    buffers: Mapping[str, BufferRef]
    dims: tuple[int | float, ...]
    unless_same: tuple[BufferRef, BufferRef] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredNode:
    """Launches in order, and the bytes of each scratch buffer that they share."""

    launches: tuple[KernelLaunch, ...]
    scratch: tuple[int, ...] = ()


Lowerer: TypeAlias = Callable[[LoweringRequest], LoweredNode]


def launch(
    kernel: str,
    groups: int,
    buffers: Mapping[str, BufferRef],
    dims: Sequence[int | float],
    *,
    constants: Mapping[str, Constant] | None = None,
    preludes: tuple[str, ...] = (),
    workgroup: int = WORKGROUP,
) -> KernelLaunch:
    """Return a launch of ``graph/kernel`` over a flat grid, which the device folds if it is too long.

    A kernel of a package is ``package:kernel``, see `shaders.linker.read`.
    """
    dispatch = Dispatch(
        kernel=kernel if ":" in kernel else f"graph/{kernel}",
        grid=WorkgroupGrid(x=groups),
        constants={"WG": workgroup, **(constants or {})},
        preludes=(NONE.prelude, *preludes),
    )
    return KernelLaunch(dispatch=dispatch, buffers=buffers, dims=tuple(dims))


def predicate_launch(one: KernelLaunch, first: int, size: int) -> KernelLaunch:
    """Let the workgroups of a launch end at once if nothing reads their part of a result.

    Parameters
    ----------
    first : column of the predicate for the first part; its tensor is the only one of its kind
    size : elements of a part
    """
    preludes = tuple(PARTS.prelude if name == NONE.prelude else name for name in one.dispatch.preludes)
    return replace(
        one,
        dispatch=replace(one.dispatch, preludes=preludes, args=(first, size)),
        buffers={**one.buffers, "fires": BufferRef("guard", 0)},
    )


def single_launch(one: KernelLaunch) -> LoweredNode:
    """Return an operation that is one launch."""
    return LoweredNode(launches=(one,))


def workgroup_size(caps: Caps) -> int:
    """Default invocations of a workgroup."""
    return min(WORKGROUP, caps.max_workgroup)


def elements_per_invocation(count: int, caps: Caps) -> int:
    """Elements per invocation of an element-wise kernel: 4 if that leaves enough to keep the device busy."""
    return 4 if count >= 4 * caps.invocations else 1


def flat_groups(count: int, caps: Caps) -> int:
    """Workgroups of an element-wise kernel."""
    return ceil_div(count, workgroup_size(caps) * elements_per_invocation(count, caps))


def elements(
    kernel: str,
    count: int,
    caps: Caps,
    buffers: Mapping[str, BufferRef],
    dims: Sequence[int | float],
    *,
    constants: Mapping[str, Constant] | None = None,
    preludes: tuple[str, ...] = (),
) -> KernelLaunch:
    """Return a launch with an invocation for each of `count` elements, or for each 4."""
    return launch(
        kernel,
        flat_groups(count, caps),
        buffers,
        dims,
        constants={"EACH": elements_per_invocation(count, caps), **(constants or {})},
        preludes=preludes,
        workgroup=workgroup_size(caps),
    )


def one_each(
    kernel: str,
    count: int,
    caps: Caps,
    buffers: Mapping[str, BufferRef],
    dims: Sequence[int | float],
    *,
    constants: Mapping[str, Constant] | None = None,
    preludes: tuple[str, ...] = (),
) -> KernelLaunch:
    """Return a launch with an invocation for each of `count` elements."""
    size = workgroup_size(caps)
    return launch(kernel, ceil_div(count, size), buffers, dims, constants=constants, preludes=preludes, workgroup=size)


def unsupported(op: str, what: str) -> UnsupportedError:
    """Return the error for attributes that no GPU kernel supports."""
    return UnsupportedError(f"{op}: the GPU has no kernel for {what}", hint="use device='cpu'")


__getattr__ = moved_names_getattr(__name__)
