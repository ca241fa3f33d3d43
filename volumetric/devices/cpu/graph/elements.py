"""Steps of element-wise functions, and of copies and reductions over strided layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from volumetric.base._typing import Shape
from volumetric.base.errors import UnsupportedError
from volumetric.devices.cpu.graph.graph_rules import move_nanoseconds, rule
from volumetric.devices.cpu.kernels.formula_kernels import code_of
from volumetric.devices.cpu.kernels.graph.elementwise import (
    BINARY_ARGUMENTS,
    PAIRS,
    UNARY_ARGUMENTS,
    UNARY_GRAD_ARGUMENTS,
)
from volumetric.devices.cpu.kernels.graph.noise import DROPOUT_ARGUMENTS, GUMBEL_ARGUMENTS, NORMAL_ARGUMENTS
from volumetric.devices.cpu.kernels.graph.reduce import CHUNK, REDUCE_ARGUMENTS, SUMS_ARGUMENTS
from volumetric.devices.cpu.kernels.graph.strided_copies import (
    ASSIGN_ARGUMENTS,
    COPY_ARGUMENTS,
    FILL_ARGUMENTS,
    TRANSPOSE_ARGUMENTS,
)
from volumetric.devices.cpu.kernels.graph.unary import FUNCTIONS, SLOPES
from volumetric.devices.cpu.step_builder import StepBuilder, TensorAddress
from volumetric.graph.kernel_axes import BINARY_AXES, broadcast_layout, merge_axes, reduce_layout
from volumetric.graph.numeric.counter_noise import threshold_of
from volumetric.graph.ops import Node
from volumetric.graph.strides import strides_of

_COST = {"linear": 0.0, "relu": 0.0, "exp": 0.3, "log": 0.5, "tanh": 0.8, "gelu": 1.0, "gelu_tanh": 1.0, "silu": 0.7}
"""Nanoseconds per element in addition to moving it."""


def _add_flat_step(
    draft: StepBuilder,
    name: str,
    names: Sequence[str],
    /,
    *constants: int | str,
    reads: Mapping[str, int | None],
    y: int,
    cost: float = 0.0,
    **arguments: Any,
) -> None:
    """Append a step whose threads partition the elements of `y`, and of operands of its size; `cost` is per element."""
    count = draft.sizes[y] // 4
    like = tuple(i for i in (*reads.values(), y) if i is not None and draft.sizes[i] == draft.sizes[y])
    work = move_nanoseconds(4 * count * len(like)) + cost * count
    arguments |= {"count": count, "flat": count, "shared": like, "work": work}
    draft.add(name, names, *constants, reads=reads, writes={"y": y}, **arguments)


@rule("unary")
def unary(builder: StepBuilder, node: Node) -> None:
    """One function of each element."""
    [x], [y], name = node.inputs, node.outputs, node.attrs["name"]
    arguments = {key: float(node.attrs[key]) for key in ("alpha", "beta")}
    code, cost = code_of(name, FUNCTIONS), _COST.get(name, 0.2)
    _add_flat_step(builder, "unary", UNARY_ARGUMENTS, code, reads={"x": x}, y=y, cost=cost, over=(x,), **arguments)


@rule("dropout")
def dropout(builder: StepBuilder, node: Node) -> None:
    """Scale some elements; set the others to 0."""
    (x, key), [y], p = node.inputs, node.outputs, node.attrs["p"]
    arguments = {"stream": node.attrs["stream"], "threshold": threshold_of(p), "factor": 0.0 if p == 1 else 1 / (1 - p)}
    _add_flat_step(builder, "dropout", DROPOUT_ARGUMENTS, reads={"x": x, "key": key}, y=y, cost=0.5, **arguments)


@rule("gumbel")
def gumbel(builder: StepBuilder, node: Node) -> None:
    """Add noise derived from place and position."""
    (x, positions), [y] = node.inputs, node.outputs
    rows, width = builder.graph.tensors[x].shape
    low, high = (part % (1 << 32) for part in (node.attrs["seed"], node.attrs["seed"] >> 32))
    arguments = {"rows": rows, "width": width, "low": low, "high": high, "over": (x,)}
    work = move_nanoseconds(8 * rows * width) + 2 * rows * width
    builder.add(
        "gumbel", GUMBEL_ARGUMENTS, reads={"x": x, "positions": positions}, writes={"y": y}, work=work, **arguments
    )


@rule("normal")
def normal(builder: StepBuilder, node: Node) -> None:
    """Add noise derived from element numbers."""
    (x, key), [y] = node.inputs, node.outputs
    arguments = {"stream": node.attrs["stream"], "first": node.attrs["first"] % (1 << 32)}
    _add_flat_step(
        builder, "normal", NORMAL_ARGUMENTS, reads={"x": x, "key": key}, y=y, cost=2.0, over=(x,), **arguments
    )


@rule("unary_grad")
def unary_grad(builder: StepBuilder, node: Node) -> None:
    """``g f'(x)``."""
    (g, x), [y], name = node.inputs, node.outputs, node.attrs["name"]
    code, cost = code_of(name, SLOPES), _COST.get(name, 0.2)
    _add_flat_step(
        builder, "unary_grad", UNARY_GRAD_ARGUMENTS, code, reads={"g": g, "x": x}, y=y, cost=cost, over=(g, x)
    )


@rule("binary", "accumulate")
def binary(builder: StepBuilder, node: Node) -> None:
    """A function of pairs, broadcast over at most 4 axes; ``accumulate`` adds in place, see `merged_predicates`."""
    (a, b), [y] = node.inputs, node.outputs
    count = builder.tensor(y).size
    sizes, (_, *steps) = broadcast_layout(builder.shape(y), builder.shape(a), builder.shape(b))
    if len(sizes) > BINARY_AXES:
        raise UnsupportedError(
            f"binary at {node.where or 'an unnamed place'} broadcasts over {len(sizes)} separate axes",
            hint=f"reshape so that at most {BINARY_AXES} remain",
        )
    lead = BINARY_AXES - len(sizes)
    sizes = (1,) * lead + sizes
    a_steps, b_steps = ((0,) * lead + tuple(4 * s for s in own) for own in steps)
    if sizes[-1] == 1:  # one element: any stride works, and vectors are the common case
        a_steps, b_steps = (*a_steps[:-1], 4), (*b_steps[:-1], 4)
    places: dict[str, Any] = {f"a{i}": step for i, step in enumerate(a_steps)}
    places |= {f"b{i}": step for i, step in enumerate(b_steps)} | {f"n{i}": sizes[i] for i in (1, 2, 3)}
    whole = [i for i in (a, b) if builder.tensor(i).size == count]
    code = PAIRS.index(node.attrs["name"])
    _add_flat_step(builder, "binary", BINARY_ARGUMENTS, code, reads={"a": a, "b": b}, y=y, over=whole, **places)


def fill(builder: StepBuilder, y: int, value: float) -> None:
    """Set a tensor to one number."""
    _add_flat_step(builder, "fill", FILL_ARGUMENTS, reads={}, y=y, value=value)


def copy(
    builder: StepBuilder,
    x: TensorAddress,
    y: TensorAddress,
    sizes: Shape,
    x_steps: Sequence[int],
    y_steps: Sequence[int],
) -> None:
    """Copy `sizes` elements between two layouts with strides in elements; the last axis of y is contiguous."""
    if prod(sizes) == 0:
        return
    sizes, (y_steps, x_steps) = merge_axes(sizes, y_steps, x_steps)
    work = move_nanoseconds(8 * prod(sizes))
    *outer, inner = range(len(sizes))
    across = [i for i in outer if x_steps[i] == 1 and sizes[i] >= 8]
    arguments: dict[str, Any]
    common: dict[str, Any] = {"reads": (x.tensor,), "writes": (y.tensor,), "x": x, "y": y}
    if across and x_steps[inner] > 1 and sizes[inner] >= 8:
        [m] = across
        outer.remove(m)
        arguments = {"work": work, "outer": prod(sizes[i] for i in outer), "m": sizes[m]}
        arguments |= {"n": sizes[inner], "x_n": 4 * x_steps[inner], "y_m": 4 * y_steps[m]}
        builder.add(
            "transpose", TRANSPOSE_ARGUMENTS, **common, **_axes(builder, outer, sizes, x_steps, y_steps), **arguments
        )
        return
    flat = prod(sizes) if tuple(y_steps) == strides_of(sizes) and builder.sizes[y.tensor] == 4 * prod(sizes) else 0
    arguments = {"shared": (y.tensor,) if flat else (), "work": work}
    arguments |= {"rows": prod(sizes[i] for i in outer), "inner": sizes[inner]}
    arguments |= {"x_inner": 4 * x_steps[inner], "y_inner": 4 * y_steps[inner]}
    builder.add(
        "copy", COPY_ARGUMENTS, **common, flat=flat, **_axes(builder, outer, sizes, x_steps, y_steps), **arguments
    )


def _axes(builder: StepBuilder, outer: list[int], sizes: Shape, x: Sequence[int], y: Sequence[int]) -> dict[str, Any]:
    table = [number for i in reversed(outer) for number in (sizes[i], 4 * x[i], 4 * y[i])]
    return {"axes": len(outer), "table": builder.table(table)}


@rule("permute")
def permute(builder: StepBuilder, node: Node) -> None:
    """Permute axes."""
    [x], [y] = node.inputs, node.outputs
    own = strides_of(builder.shape(x))
    shape = builder.shape(y)
    copy(
        builder, TensorAddress(x), TensorAddress(y), shape, tuple(own[i] for i in node.attrs["perm"]), strides_of(shape)
    )


@rule("broadcast")
def broadcast(builder: StepBuilder, node: Node) -> None:
    """Repeat along axes of size 1."""
    [x], [y] = node.inputs, node.outputs
    shape = builder.shape(y)
    own = [0 if n == 1 else s for n, s in zip(builder.shape(x), strides_of(builder.shape(x)), strict=True)]
    copy(builder, TensorAddress(x), TensorAddress(y), shape, own, strides_of(shape))


@rule("slice")
def slice_(builder: StepBuilder, node: Node) -> None:
    """Copy out a block, unless it is read in place."""
    [x], [y] = node.inputs, node.outputs
    own, shape = strides_of(builder.shape(x)), builder.shape(y)
    first = sum(4 * s * a for s, a in zip(own, node.attrs["starts"], strict=True))
    if builder.lies_in(y, x, first):
        return
    copy(builder, TensorAddress(x, first), TensorAddress(y), shape, own, strides_of(shape))


@rule("flip")
def flip(builder: StepBuilder, node: Node) -> None:
    """Reverse one axis: a copy that starts at its end with a negative stride."""
    [x], [y], axis = node.inputs, node.outputs, node.attrs["axis"]
    shape = builder.shape(x)
    own = strides_of(shape)
    steps = tuple(-step if i == axis else step for i, step in enumerate(own))
    if shape[axis]:
        copy(builder, TensorAddress(x, 4 * own[axis] * (shape[axis] - 1)), TensorAddress(y), shape, steps, own)


@rule("pad")
def pad(builder: StepBuilder, node: Node) -> None:
    """Pad with zeros."""
    [x], [y] = node.inputs, node.outputs
    own, shape = strides_of(builder.shape(y)), builder.shape(x)
    if builder.shape(y) != shape:
        fill(builder, y, 0.0)
    first = sum(4 * s * b for s, b in zip(own, node.attrs["before"], strict=True))
    copy(builder, TensorAddress(x), TensorAddress(y, first), shape, strides_of(shape), own)


@rule("concat")
def concat(builder: StepBuilder, node: Node) -> None:
    """Copy the parts not already built in place, joined along an axis."""
    [y], axis, at = node.outputs, node.attrs["axis"], 0
    own = strides_of(builder.shape(y))
    flat = prod(builder.shape(y)[:axis]) == 1
    for x in node.inputs:
        shape, start = builder.shape(x), 4 * own[axis] * at
        at += shape[axis]
        if not builder.lies_in(x, y, start):
            to = TensorAddress(builder.temporary_slice(y, start, builder.sizes[x])) if flat else TensorAddress(y, start)
            copy(builder, TensorAddress(x), to, shape, strides_of(shape), own)


@rule("assign")
def assign(builder: StepBuilder, node: Node) -> None:
    """Write a persistent buffer."""
    x, *apply = node.inputs
    _add_flat_step(
        builder, "assign", ASSIGN_ARGUMENTS, reads={"x": x, "apply": next(iter(apply), None)}, y=node.outputs[0]
    )


@rule("reduce")
def reduce(builder: StepBuilder, node: Node) -> None:
    """Sum, mean or maximum over axes."""
    [x], [y], name = node.inputs, node.outputs, node.attrs["name"]
    runs = list(reduce_layout(builder.shape(x), node.attrs["axes"]))
    if builder.tensor(x).size == 0:
        fill(builder, y, 0.0)
        return
    factor = builder.tensor(y).size / builder.tensor(x).size if name == "mean" else 1.0
    source = x
    if runs == [(builder.tensor(x).size, True)] and name != "max" and builder.tensor(x).size > 4 * CHUNK:
        source, runs = _add_chunk_sums(builder, x)
    while sum(reduced for _, reduced in runs) > 2:  # the last run first, into a temporary tensor
        last = max(i for i, (_, reduced) in enumerate(runs) if reduced)
        outer = prod(n for n, _ in runs[:last])
        inner = prod(n for n, _ in runs[last + 1 :])
        target = builder.temporary(4 * outer * inner)
        reduction(builder, source, target, (1, 1, outer, runs[last][0], inner), largest=name == "max")
        source = target
        runs[last - 1 : last + 2] = [(runs[last - 1][0] * inner, False)]
    if len(runs) < 5 and runs[0][1]:
        runs.insert(0, (1, False))
    sizes = [n for n, _ in runs] + [1] * (5 - len(runs))
    if len(runs) == 3:  # kept, reduced, kept: the middle axis takes the sum, so that the last one is contiguous
        sizes = [runs[0][0], 1, 1, runs[1][0], runs[2][0]]
    elif len(runs) == 2:
        sizes = [runs[0][0], 1, 1, runs[1][0], 1]
    elif len(runs) == 1:
        sizes = [1, 1, 1, 1, runs[0][0]]
    reduction(builder, source, y, sizes, factor=factor, largest=name == "max")


def reduction(
    builder: StepBuilder, x: int, y: int, sizes: Sequence[int], *, factor: float = 1.0, largest: bool = False
) -> None:
    """Append sums, or maxima, of a tensor of 5 axes over its second and fourth."""
    arguments = dict(zip(("k0", "r0", "k1", "r1", "k2"), sizes, strict=True))
    work = move_nanoseconds(builder.sizes[x])
    places: dict[str, Any] = {"reads": {"x": x}, "writes": {"y": y}}
    builder.add("reduce", REDUCE_ARGUMENTS, int(largest), **places, work=work, factor=factor, **arguments)


def _add_chunk_sums(builder: StepBuilder, x: int) -> tuple[int, list[tuple[int, bool]]]:
    """Append sums of chunks, shared by all threads; return them as the tensor left to sum."""
    count = builder.sizes[x] // 4
    chunks = -(-count // CHUNK)
    partial = builder.temporary(4 * chunks)
    arguments = {"reads": {"x": x}, "writes": {"y": partial}, "count": count}
    builder.add("chunk_sums", SUMS_ARGUMENTS, work=move_nanoseconds(4 * count), **arguments)
    return partial, [(chunks, True)]
