"""Operations of graphs as loops: element by element, products, norms, lookups, and moving data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, TypeAlias

from volumetric.base._typing import Shape
from volumetric.codegen.loop_writer import ArrayView, LoopWriter
from volumetric.formula.binary_functions import PAIRS
from volumetric.formula.unary_functions import FUNCTIONS

Attrs: TypeAlias = Mapping[str, Any]
OperationCode: TypeAlias = Callable[[LoopWriter, Sequence[ArrayView], Attrs, Sequence[ArrayView]], None]
"""Writes the code of a node from its inputs, its attributes and its outputs, which are zero before.

An output that nobody reads has no name, unless it is the first."""


def function_text(write: LoopWriter, attrs: Attrs, x: str) -> str:
    """Return the text of a function of one number."""
    names = {"x": x} | {name: write.language.number(attrs[name]) for name in ("alpha", "beta") if name in attrs}
    return write.formula(names, FUNCTIONS[attrs["name"]].value)[0]


def _unary(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    strides = x[0].strides
    with write.nest(x[0].shape, (x[0], strides, 0), (y[0], strides, 0)) as (source, target):
        value = source if attrs["name"] in ("neg", "affine") else write.let("x", source)
        write.set(target, function_text(write, attrs, value))


def _repeated(view: ArrayView, shape: Shape) -> Shape:
    """Return the strides of an array that is broadcast to `shape`."""
    missing = len(shape) - len(view.shape)
    return (0,) * missing + tuple(0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True))


def _binary(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    (target,), shape = y, y[0].shape
    operands = [(view, _repeated(view, shape), 0) for view in x]
    with write.nest(shape, *operands, (target, target.strides, 0)) as (a, b, c):
        write.set(c, write.formula({"a": a, "b": b}, PAIRS[attrs["name"]].value)[0])


def copy_array(
    write: LoopWriter,
    sizes: Shape,
    source: tuple[ArrayView, Sequence[int], int],
    target: tuple[ArrayView, Sequence[int], int],
) -> None:
    """Write the copy of elements: both operands as in `LoopWriter.nest`."""
    with write.nest(sizes, source, target) as (a, b):
        write.set(b, a)


def _permute(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    strides = [x[0].strides[axis] for axis in attrs["perm"]]
    copy_array(write, y[0].shape, (x[0], strides, 0), (y[0], y[0].strides, 0))


def _slice(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    start = sum(a * s for a, s in zip(attrs["starts"], x[0].strides, strict=True))
    copy_array(write, y[0].shape, (x[0], x[0].strides, start), (y[0], y[0].strides, 0))


def _last(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    axis = attrs["axis"]
    start = (x[0].shape[axis] - 1) * x[0].strides[axis]
    copy_array(write, y[0].shape, (x[0], x[0].strides, start), (y[0], y[0].strides, 0))


def _flip(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    axis, strides = attrs["axis"], list(x[0].strides)
    start, strides[axis] = (x[0].shape[axis] - 1) * strides[axis], -strides[axis]
    copy_array(write, y[0].shape, (x[0], strides, start), (y[0], y[0].strides, 0))


def _pad(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    start = sum(a * s for a, s in zip(attrs["before"], y[0].strides, strict=True))
    copy_array(write, x[0].shape, (x[0], x[0].strides, 0), (y[0], y[0].strides, start))


def _concat(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    at = 0
    for view in x:
        start = at * y[0].strides[attrs["axis"]]
        copy_array(write, view.shape, (view, view.strides, 0), (y[0], y[0].strides, start))
        at += view.shape[attrs["axis"]]


def _delay(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    rows, past = x
    every = write.array(f"{y[0].name}_all", (past.shape[0] + rows.shape[0], *rows.shape[1:]))
    _concat(write, (past, rows), {"axis": 0}, (every,))
    copy_array(write, rows.shape, (every, every.strides, 0), (y[0], y[0].strides, 0))
    start = rows.shape[0] * every.strides[0]
    if y[1].name:
        copy_array(write, past.shape, (every, every.strides, start), (y[1], y[1].strides, 0))


def _broadcast(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    copy_array(write, y[0].shape, (x[0], _repeated(x[0], y[0].shape), 0), (y[0], y[0].strides, 0))


def _reduce(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    name, axes, shape = attrs["name"], attrs["axes"], x[0].shape
    inner = [n if i in axes else 1 for i, n in enumerate(shape)]
    count = prod(inner)
    with write.nest(y[0].shape, (y[0], y[0].strides, 0), (x[0], x[0].strides, 0)) as (target, first):
        total = write.let("total", first if name == "max" else "0.0")
        base = ArrayView(x[0].name, shape, 0)
        offset = first[len(x[0].name) + 1 : -1]
        with write.nest(inner, (base, x[0].strides, 0)) as (element,):
            own = element[len(x[0].name) + 1 : -1]
            place = f"{x[0].name}[{offset}]" if own == "0" else f"{x[0].name}[{offset} + {own}]"
            write.set(total, write.word("max", total, place) if name == "max" else f"{total} + {place}")
        write.set(target, f"{total} / {count}" if name == "mean" else total)


def gemm_code(
    write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView], after: Attrs | None = None
) -> None:
    """Write a product of groups; `after` is a function of one number that the result passes."""
    a, b, *bias = x
    (ga, *_), (gb, *_), (gc, rows, columns) = a.shape, b.shape, y[0].shape
    depth = a.shape[1] if attrs["trans_a"] else a.shape[2]
    by_row, by_depth = a.strides[1:][::-1] if attrs["trans_a"] else a.strides[1:]
    depth_b, by_column = b.strides[1:][::-1] if attrs["trans_b"] else b.strides[1:]
    groups = max(ga, gb, gc) if ga and gb else gc
    uniform = {ga, gb} <= {1, gc} or not ga or not gb
    for first in range(1) if uniform else range(groups):
        last = uniform or first + gc >= groups
        with write.loops([gc if uniform else 1, rows, columns]) as (g, i, j):
            part = 0 if uniform else first % gc
            target = y[0].at((g, rows * columns), (i, columns), (j, 1), plus=part * rows * columns)
            start = "0.0" if uniform or first < gc else target
            if bias and (uniform or first < gc):
                per = columns if len(bias[0].shape) == 2 else 0
                start = bias[0].at((g, per), (j, 1), plus=part * per)
            total = write.let("total", start)
            if ga and gb:
                with write.loops([depth]) as (k,):
                    left = a.at(
                        (g, a.strides[0] if ga > 1 else 0),
                        (i, by_row),
                        (k, by_depth),
                        plus=0 if uniform else first % ga * a.strides[0],
                    )
                    right = b.at(
                        (g, b.strides[0] if gb > 1 else 0),
                        (j, by_column),
                        (k, depth_b),
                        plus=0 if uniform else first % gb * b.strides[0],
                    )
                    write.set(total, f"{total} + {left} * {right}")
            if last and attrs["activation"] != "linear":
                write.set(total, function_text(write, {"name": attrs["activation"]}, total))
            write.set(target, function_text(write, after, total) if after and last else total)


def _norm(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    """Write the norm of each row: RMS norm or layer norm, with gain and bias if there are some."""
    view, *vectors = x
    rows, width = view.shape
    with write.loops([rows]) as (r,):

        def row(of: ArrayView, name: str) -> str:
            return of.at((r, width), (name, 1))

        mean = ""
        if attrs["kind"] == "layer":
            mean = write.let("mean", "0.0")
            with write.loops([width]) as (i,):
                write.set(mean, f"{mean} + {row(view, i)} / {width}")
        square = write.let("square", "0.0")
        centred = f" - {mean}" if mean else ""
        with write.loops([width]) as (i,):
            value = f"({row(view, i)}{centred})"
            write.set(square, f"{square} + {value} * {value} / {width}")
        root = write.word("sqrt", f"{square} + {write.language.number(attrs['eps'])}")
        scale = write.let("scale", write.word("div", "1.0", root))
        with write.loops([width]) as (i,):
            text = f"({row(view, i)}{centred}) * {scale}"
            if vectors:
                gain = vectors[0].at((i, 1))
                text += f" * (1 + {gain})" if attrs["unit_offset"] else f" * {gain}"
            write.set(row(y[0], i), text + (f" + {vectors[1].at((i, 1))}" if len(vectors) > 1 else ""))


def _softmax(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    rows, width = x[0].shape
    with write.loops([rows]) as (r,):
        top = write.let("top", x[0].at((r, width)))
        with write.loops([width]) as (i,):
            write.set(top, write.word("max", top, x[0].at((r, width), (i, 1))))
        least = write.language.number(float("-inf"))
        shift = write.let("shift", write.choose(f"{top} == {least}", "0.0", top))
        total = write.let("total", "0.0")
        with write.loops([width]) as (i,):
            place = y[0].at((r, width), (i, 1))
            write.set(place, write.word("exp", f"{x[0].at((r, width), (i, 1))} - {shift}"))
            write.set(total, f"{total} + {place}")
        with write.loops([width]) as (i,):
            place = y[0].at((r, width), (i, 1))
            write.set(place, write.choose(f"{total} == 0", "0.0", f"{place} / {total}"))


def _gather(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    (table, ids), (count, width) = x, y[0].shape
    size = table.shape[0]
    with write.loops([count]) as (r,):
        number = ids.at((r, 1))
        inside = write.both([f"{number} >= 0", f"{number} < {size}"])
        with write.loops([width]) as (i,):
            place = index_of(write.language.integer.format(number), width, i, table.offset)
            row = write.choose(inside, f"{table.name}[{place}]", write.language.number(float("nan")))
            write.set(y[0].at((r, width), (i, 1)), row)


def index_of(row: str, width: int, column: str, offset: int) -> str:
    """Return the text of the place of an element of a row."""
    text = row if width == 1 else f"{row} * {width}"
    text += f" + {column}" if column != "0" else ""
    return text + (f" + {offset}" if offset else "")


CODE: Final[dict[str, OperationCode]] = {
    "unary": _unary,
    "binary": _binary,
    "permute": _permute,
    "slice": _slice,
    "last": _last,
    "flip": _flip,
    "pad": _pad,
    "concat": _concat,
    "delay": _delay,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gemm": gemm_code,
    "norm": _norm,
    "softmax": _softmax,
    "gather_rows": _gather,
}
"""Operation → its code; `image_code` and `recurrent_code` have others."""
