"""Operations that move, repeat or reduce data along axes, and the write to a persistent buffer.

``reshape``     x → the same elements in another shape; a view: both share storage. Also int32.
``permute``     x → ``NumPy transpose(x, perm)``. ``perm``.
``slice``       x → ``x[starts[0]:stops[0], …]``. ``starts``, ``stops``: one for each axis. Also int32.
``flip``        x → ``NumPy flip(x, axis)``.
``delay``       x [n, …], past [d, …] → the first n and the last d rows of ``past`` and x concatenated: x d rows
                earlier, and the new past. Works on open axes.
``last``        x → the last element of ``axis``, which stays with size 1. Works on open axes.
``pad``         x → x with ``before[i]`` zeros before and ``after[i]`` zeros after it along axis i.
``concat``      1 or more x → joined along ``axis``.
``broadcast``   x → x repeated to ``shape``; x has as many axes, each of the same size or 1.
``reduce``      x → ``name`` (sum max mean) over ``axes`` (rising, 1 or more), which stay with size 1. max: NumPy; an
                empty sum is 0; max and mean of an empty axis raise when the graph is built.
``assign``      value [, apply [1]] → the buffer ``key`` (shape of value), written in place; if ``apply`` is 0 it is
                unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph.operations.operation import Attrs, declare, float_output, require, require_floats
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

Found = list["int | None"]


def _infer_reshape(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    x, shape = inputs[0], attrs["shape"]
    require(shape and prod(shape) == x.size, "reshape", f"cannot reshape {list(x.shape)} to {list(shape)}")
    return [Tensor(name=x.name, shape=shape, dtype=x.dtype)]


def _vjp_reshape(work: GraphBuilder, node: Node, g: int) -> Found:
    return [work.reshape(g, work.shape(node.inputs[0]))]


def _infer_permute(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("permute", inputs)
    shape, perm = inputs[0].shape, attrs["perm"]
    require(sorted(perm) == list(range(len(shape))), "permute", f"{perm} is not a permutation of {len(shape)} axes")
    return [float_output("permuted", *(shape[i] for i in perm))]


def _run_permute(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    return [np.ascontiguousarray(inputs[0].transpose(attrs["perm"]))]


def _vjp_permute(work: GraphBuilder, node: Node, g: int) -> Found:
    perm = node.attrs["perm"]
    return [work.permute(g, tuple(perm.index(i) for i in range(len(perm))))]


def _infer_slice(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    shape, starts, stops = inputs[0].shape, attrs["starts"], attrs["stops"]
    inside = len(starts) == len(stops) == len(shape) and all(
        (a, b) == (0, n) or (a == 0 and b < 0) or 0 <= a <= b <= n for a, b, n in zip(starts, stops, shape, strict=True)
    )
    require(inside, "slice", f"{starts} to {stops} is out of bounds for shape {list(shape)}")
    cut = tuple(b - a for a, b in zip(starts, stops, strict=True))
    return [Tensor(name="slice", shape=cut, dtype=inputs[0].dtype)]


def _run_slice(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    places = tuple(slice(a, b) for a, b in zip(attrs["starts"], attrs["stops"], strict=True))
    return [np.ascontiguousarray(inputs[0][places])]


def _vjp_slice(work: GraphBuilder, node: Node, g: int) -> Found:
    shape = work.shape(node.inputs[0])
    after = tuple(n - b for n, b in zip(shape, node.attrs["stops"], strict=True))
    return [work.pad(g, node.attrs["starts"], after)]


def _infer_last(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("last", inputs)
    shape, axis = inputs[0].shape, attrs["axis"]
    require(0 <= axis < len(shape) and shape[axis], "last", f"shape {list(shape)} has no elements along axis {axis}")
    return [float_output("last", *shape[:axis], 1, *shape[axis + 1 :])]


def _run_last(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    size, axis = inputs[0].shape[attrs["axis"]], attrs["axis"]
    return [np.ascontiguousarray(inputs[0].take([size - 1], axis))]


def _vjp_last(work: GraphBuilder, node: Node, g: int) -> Found:
    shape, axis = work.shape(node.inputs[0]), node.attrs["axis"]
    before = tuple(n - 1 if i == axis else 0 for i, n in enumerate(shape))
    return [work.pad(g, before, (0,) * len(shape))]


def _infer_flip(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("flip", inputs)
    shape, axis = inputs[0].shape, attrs["axis"]
    require(0 <= axis < len(shape), "flip", f"shape {list(shape)} has no axis {axis}")
    return [float_output("flipped", *shape)]


def _run_flip(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    return [np.ascontiguousarray(np.flip(inputs[0], attrs["axis"]))]


def _vjp_flip(work: GraphBuilder, node: Node, g: int) -> Found:
    return [work.flip(g, node.attrs["axis"])]


def _infer_delay(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    x, past = inputs
    alike = x.shape[1:] == past.shape[1:] and x.dtype == past.dtype and past.shape[0] > 0
    require(alike, "delay", "x and past must have rows of the same shape and dtype")
    return [Tensor(name=name, shape=of.shape, dtype=of.dtype) for name, of in (("earlier", x), ("past", past))]


def _run_delay(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, past = inputs
    every = np.concatenate([past, x])
    return [every[: len(x)], every[len(x) :]]


def _infer_pad(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("pad", inputs)
    shape, before, after = inputs[0].shape, attrs["before"], attrs["after"]
    require(len(before) == len(after) == len(shape), "pad", f"before and after need {len(shape)} numbers, one per axis")
    require(min(*before, *after) >= 0, "pad", "before and after must not be negative")
    return [float_output("padded", *(b + n + a for b, n, a in zip(before, shape, after, strict=True)))]


def _run_pad(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    return [np.pad(inputs[0], list(zip(attrs["before"], attrs["after"], strict=True)))]


def _vjp_pad(work: GraphBuilder, node: Node, g: int) -> Found:
    before, shape = node.attrs["before"], work.shape(node.inputs[0])
    return [work.slice(g, before, tuple(b + n for b, n in zip(before, shape, strict=True)))]


def _infer_concat(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require(len({t.dtype for t in inputs}) == 1, "concat", "takes tensors of one dtype")
    axis, first = attrs["axis"], inputs[0].shape
    require(0 <= axis < len(first), "concat", f"shape {list(first)} has no axis {axis}")
    others = {(t.shape[:axis], t.shape[axis + 1 :], len(t.shape)) for t in inputs}
    require(
        len(others) == 1, "concat", "shapes " + " and ".join(str(list(t.shape)) for t in inputs) + " do not concatenate"
    )
    joined = (*first[:axis], sum(t.shape[axis] for t in inputs), *first[axis + 1 :])
    return [Tensor(name="joined", shape=joined, dtype=inputs[0].dtype)]


def _vjp_concat(work: GraphBuilder, node: Node, g: int) -> Found:
    return [*work.split(g, [work.shape(i)[node.attrs["axis"]] for i in node.inputs], node.attrs["axis"])]


def _infer_broadcast(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("broadcast", inputs)
    shape, target = inputs[0].shape, attrs["shape"]
    fits = len(shape) == len(target) and all(n in (1, m) for n, m in zip(shape, target, strict=True))
    require(fits, "broadcast", f"cannot broadcast {list(shape)} to {list(target)}")
    return [float_output("spread", *target)]


def _vjp_broadcast(work: GraphBuilder, node: Node, g: int) -> Found:
    shape = work.shape(node.inputs[0])
    axes = tuple(i for i, (n, m) in enumerate(zip(shape, node.attrs["shape"], strict=True)) if n != m)
    return [work.reduce(g, "sum", axes) if axes else g]


REDUCE = ("sum", "max", "mean")
"""Names of `reduce`."""


def _infer_reduce(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("reduce", inputs)
    shape, axes = inputs[0].shape, attrs["axes"]
    if attrs["name"] not in REDUCE:
        raise SpecError(f"reduce: unknown name {attrs['name']!r}", hint="one of " + ", ".join(REDUCE))
    good = axes and list(axes) == sorted(set(axes)) and axes[0] >= 0 and axes[-1] < len(shape)
    require(good, "reduce", f"{axes} must be ascending axes of shape {list(shape)}")
    empty = attrs["name"] != "sum" and prod(shape[i] for i in axes) == 0
    require(not empty, "reduce", f"{attrs['name']} needs elements, got an empty axis")
    return [float_output(attrs["name"], *(1 if i in axes else n for i, n in enumerate(shape)))]


def _run_reduce(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    total = {"sum": np.sum, "max": np.max, "mean": np.mean}[attrs["name"]]
    return [total(inputs[0], axis=tuple(attrs["axes"]), keepdims=True)]


def _vjp_reduce(work: GraphBuilder, node: Node, g: int) -> Found:
    x, name, axes = node.inputs[0], node.attrs["name"], node.attrs["axes"]
    shape = work.shape(x)
    if name == "max":  # equal elements share the gradient
        top = work.affine(work.binary("greater", node.outputs[0], x), -1.0, 1.0)
        return [work.binary("mul", top, work.binary("div", g, work.reduce(top, "sum", axes)))]
    if name == "mean":
        g = work.affine(g, 1 / prod(shape[i] for i in axes))
    return [work.broadcast(g, shape)]


def _infer_assign(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("assign", inputs[1:])
    require(len(inputs) == 1 or inputs[1].shape == (1,), "assign", "apply needs shape [1]")
    return [Tensor(name=attrs["key"], shape=inputs[0].shape, dtype=inputs[0].dtype, key=attrs["key"])]


def _run_assign(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    return [inputs[0]]  # the interpreter reads `apply`, because only it has the buffer


declare("reshape", _infer_reshape, lambda inputs, attrs: [inputs[0].reshape(attrs["shape"])], _vjp_reshape)
declare("permute", _infer_permute, _run_permute, _vjp_permute)
declare("slice", _infer_slice, _run_slice, _vjp_slice)
declare("flip", _infer_flip, _run_flip, _vjp_flip)
declare("delay", _infer_delay, _run_delay)
declare("last", _infer_last, _run_last, _vjp_last)
declare("pad", _infer_pad, _run_pad, _vjp_pad)
declare("concat", _infer_concat, lambda inputs, attrs: [np.concatenate(inputs, attrs["axis"])], _vjp_concat)
declare(
    "broadcast",
    _infer_broadcast,
    lambda inputs, attrs: [np.ascontiguousarray(np.broadcast_to(inputs[0], attrs["shape"]))],
    _vjp_broadcast,
)
declare("reduce", _infer_reduce, _run_reduce, _vjp_reduce)
declare("assign", _infer_assign, _run_assign)
