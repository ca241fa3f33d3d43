"""Recurrent cells as loops, from the formulas of `formula.cells`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volumetric.base.errors import UnsupportedError
from volumetric.codegen.loop_writer import ArrayView, LoopWriter
from volumetric.codegen.operation_code import CODE, Attrs
from volumetric.formula.cells import CELLS, CellFormula


def _refuse_resets(op: str, attrs: Attrs) -> None:
    if attrs.get("resets"):
        raise UnsupportedError(f"{op} with resets cannot be written as source code")


def _step(
    write: LoopWriter,
    cell: CellFormula,
    x: Sequence[str],
    r: Sequence[str],
    before: Mapping[str, str],
    count: int,
) -> list[str]:
    """Write one unit's step, and return the first `count` of its states after it, named."""
    names = {f"x{i}": text for i, text in enumerate(x)} | {f"r{i}": text for i, text in enumerate(r)} | dict(before)
    texts = write.formula(names, *[*cell.after.values()][:count])
    return [write.let(name, text) for name, text in zip(cell.after, texts, strict=False)]


def _recurrent(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    """Write a recurrent layer over the steps of a sequence: the products with the states, and its cell."""
    _refuse_resets("recurrent", attrs)
    cell = CELLS[attrs["cell"]]
    from_x, weight, *rest = x
    starts, bias = rest[: len(cell.after)], rest[len(cell.after) :]
    batch, length, wide = from_x.shape
    size, width = wide // cell.blocks, weight.shape[1]
    heads = size // width if width else 1
    with write.loops([batch]) as (b,):
        states = [write.array(f"state_{name}", (size,)) for name in cell.after]
        for state, start in zip(states, starts, strict=True):
            with write.loops([size]) as (u,):
                write.set(state.at((u, 1)), start.at((b, size), (u, 1)))
        with write.loops([length]) as (t,):
            sums = write.array("from_h", (wide,))
            for head in range(heads):  # a head sees its own states only
                with write.loops([cell.blocks, width]) as (n, u):
                    row = [(n, size), (u, 1)]
                    total = write.let("total", bias[0].at(*row, plus=head * width) if bias else "0.0")
                    with write.loops([width]) as (k,):
                        place = weight.at((n, size * width), (u, width), (k, 1), plus=head * width * width)
                        write.set(total, f"{total} + {place} * {states[0].at((k, 1), plus=head * width)}")
                    write.set(sums.at(*row, plus=head * width), total)
            with write.loops([size]) as (u,):
                pre = [from_x.at((b, length * wide), (t, wide), (u, 1), plus=i * size) for i in range(cell.blocks)]
                own = [sums.at((u, 1), plus=i * size) for i in range(cell.blocks)]
                before = {name: state.at((u, 1)) for name, state in zip(cell.after, states, strict=True)}
                after = _step(write, cell, pre, own, before, len(states))
                for state, value in zip(states, after, strict=True):
                    write.set(state.at((u, 1)), value)
                write.set(y[0].at((b, length * size), (t, size), (u, 1)), after[0])
        for state, last in zip(states[1:], y[1:], strict=False):
            if not last.name:
                continue
            with write.loops([size]) as (u,):
                write.set(last.at((b, size), (u, 1)), state.at((u, 1)))


def _cell(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    """Write the step of a cell from its formula, for every unit."""
    from volumetric.graph.numeric.numpy_cells import CELLS as NUMPY_CELLS

    cell, direct = CELLS[attrs["cell"]], NUMPY_CELLS[attrs["cell"]].direct
    from_x, from_h, bias, *before = x
    rows, wide = from_x.shape
    size = wide // cell.blocks
    own = rows // max(bias.shape[0], 1)
    for group in range(bias.shape[0]):
        with write.loops([own, size]) as (r, u):
            at = [(r, wide), (u, 1)]
            first = group * own
            pre = [
                f"({from_x.at(*at, plus=first * wide + i * size)} + {bias.at((u, 1), plus=group * wide + i * size)})"
                for i in range(cell.blocks)
            ]
            rec = [from_h.at(*at, plus=first * wide + i * size) for i in range(cell.blocks)]
            states = {
                name: before[0].at((r, size), (u, 1), plus=(k * rows + first) * size) for k, name in enumerate(direct)
            }
            known = {name: states.get(name, "0.0") for name in cell.after}
            count = len(cell.after) if len(cell.after) > 1 and y[1].name else 1
            after = _step(write, cell, pre, rec, known, count)
            write.set(y[0].at((r, size), (u, 1), plus=first * size), after[0])
            for k, value in enumerate(after[1:]):
                write.set(y[1].at((r, size), (u, 1), plus=(k * rows + first) * size), value)


def _linear_scan(write: LoopWriter, x: Sequence[ArrayView], attrs: Attrs, y: Sequence[ArrayView]) -> None:
    if attrs["reverse"] or attrs["keep"]:
        raise UnsupportedError("linear_scan in reverse or with resets cannot be written as source code")
    u, a, start = x
    batch, length, width = u.shape
    with write.loops([batch, width]) as (b, f):
        state = write.let("state", start.at((b, width), (f, 1)))
        with write.loops([length]) as (t,):
            at = [(b, length * width), (t, width), (f, 1)]
            factor = a.at(*at) if len(a.shape) == 3 else a.at((f, 1))
            write.set(state, f"{factor} * {state} + {u.at(*at)}")
            write.set(y[0].at(*at), state)


CODE["recurrent"] = _recurrent
CODE["cell"] = _cell
CODE["linear_scan"] = _linear_scan
