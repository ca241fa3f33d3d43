"""The declaration of an operation: its shape rule, its NumPy implementation and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.base.moved_modules import moved_names_getattr
from volumetric.base.registry import Registry, import_named, modules_of
from volumetric.graph.operations.names import DECLARED
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

Attrs: TypeAlias = Mapping[str, Any]
Infer: TypeAlias = Callable[[Sequence[Tensor], Attrs], Sequence[Tensor]]
"""Checks inputs and attributes; returns the outputs. Raises `ShapeError` or `SpecError`."""
Run: TypeAlias = Callable[[Sequence[Array], Attrs], Sequence[Array]]
"""Computes the outputs in the precision of the inputs. Never writes to an input."""
Vjp: TypeAlias = "Callable[[GraphBuilder, Node, int], Sequence[int | None]]"
"""Emits the gradients of the inputs from that of the first output; returns None for an input without a gradient.
Unused nodes are removed later."""
VjpOfAll: TypeAlias = "Callable[[GraphBuilder, Node, Sequence[int | None], Sequence[bool]], Sequence[int | None]]"
"""Like `Vjp`, but takes the gradients of all outputs, or None, and whether each input needs a gradient."""

WrittenOut: TypeAlias = "Callable[[GraphBuilder, Attrs, Sequence[int]], tuple[int, ...]]"
"""Emits an equivalent of the operation in other operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSpec:
    """One operation. Without a `vjp` it has no gradient: gradients of gradients are not supported.

    Only the first of several outputs has a gradient; the others help to compute gradients. An operation with a
    `vjp_of_all` instead of a `vjp` has gradients of all outputs. `written_out` decomposes it for devices without a
    kernel. `kernels` maps a device, ``"cpu"`` or ``"gpu"``, to the module of a package that registers a kernel.
    """

    name: str
    infer: Infer
    run: Run
    vjp: Vjp | None = None
    vjp_of_all: VjpOfAll | None = None
    written_out: WrittenOut | None = None
    kernels: Mapping[str, str] = field(default_factory=dict)


OPS: Registry[OpSpec] = Registry(modules_of("volumetric.graph.operations", DECLARED), group="volumetric.operations")
"""Name → operation, filled by `declare`."""


def declare(
    name: str,
    infer: Infer,
    run: Run,
    vjp: Vjp | None = None,
    *,
    vjp_of_all: VjpOfAll | None = None,
    written_out: WrittenOut | None = None,
    kernels: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Register an operation."""
    OPS[name] = OpSpec(
        name=name, infer=infer, run=run, vjp=vjp, vjp_of_all=vjp_of_all, written_out=written_out, kernels=kernels
    )


def kernels_for(device: str) -> Callable[[str | None], None]:
    """Return the function that imports the kernel which a package has for an operation on a device, see `OpSpec`."""

    def load(name: str | None) -> None:
        if name is not None and OPS.is_declared(name) and device in OPS[name].kernels:
            import_named(OPS[name].kernels[device])

    return load


def vjp_by_recomputing(written_out: WrittenOut, wrt: Collection[int]) -> Vjp:
    """Return a VJP for the inputs `wrt` that recomputes the decomposition of an operation and differentiates it."""

    def vjp(work: GraphBuilder, node: Node, g: int) -> Sequence[int | None]:
        from volumetric.graph.differentiate import differentiate  # it imports this package

        first = len(work.nodes)
        y, *_ = written_out(work, node.attrs, node.inputs)
        gradients = differentiate(work, {y: g}, [node.inputs[i] for i in wrt], since=first)
        return [gradients.get(of) if i in wrt else None for i, of in enumerate(node.inputs)]

    return vjp


def float_output(name: str, *shape: int) -> Tensor:
    """Return a float32 output."""
    return Tensor(name=name, shape=shape)


def require(condition: object, op: str, message: str) -> None:
    """Raise `ShapeError` unless `condition` holds."""
    if not condition:
        raise ShapeError(f"{op}: {message}")


def require_floats(op: str, inputs: Sequence[Tensor]) -> None:
    """Raise `ShapeError` unless all inputs are float32."""
    require(all(t.dtype == "float32" for t in inputs), op, "takes float32 tensors only")


def widest(*sizes: int) -> int:
    """Return the largest of sizes; an open size is larger than any other."""
    return min(sizes) if min(sizes) < 0 else max(sizes)


def axes_of(op: str, tensor: Tensor, count: int) -> tuple[int, ...]:
    """Return the shape of `tensor`; raise `ShapeError` unless it has `count` axes."""
    require(len(tensor.shape) == count, op, f"needs {count} axes, got shape {list(tensor.shape)}")
    return tensor.shape


__getattr__ = moved_names_getattr(__name__)
