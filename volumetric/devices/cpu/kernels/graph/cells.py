"""Recurrent cells: up to 16 hidden units of one row, one step forward and back, generated from `formula.cells`.

A cell is a number, its index in `CODES`, known when a kernel is compiled. The blocks of a row are ``4 * size``
bytes apart.
"""

from __future__ import annotations

import numpy as np

from volumetric.devices.cpu.kernels.formula_kernels import kernel_by_code, statements_of
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.maths import WORDS
from volumetric.devices.cpu.kernels.simd import splat
from volumetric.formula.cells import CELLS, CellFormula
from volumetric.formula.expression import node, subexpressions, substitute, variable

f32 = np.float32

CODES = tuple(CELLS)
"""Index = the code of a cell."""


def keeps(cell: int) -> int:
    """Number of values per unit that `forward` stores in addition to the states, for cell number `cell`."""
    return len(CELLS[CODES[cell]].keeps)


@kernel
def _from_h(room, apart, bias, block, size, left):
    """Pre-activations of a block from the previous state."""
    value = load_part(room + apart * block, left)
    if bias == 0:
        return value
    return value + load_part(bias + 4 * block * size, left)


@kernel
def _from_x(x, offset, block, size, left):
    """Pre-activations of a block from the input."""
    value = load_part(x + 4 * block * size, left)
    if offset == 0:
        return value
    return value + load_part(offset + 4 * block * size, left)


@kernel
def add_arrived(own, arrived, offset, left):
    """`own` plus the vector at `arrived` (0: nothing)."""
    if arrived != 0:
        own = own + load_part(arrived + offset, left)
    return own


@kernel
def arrived_or_zero(arrived, offset, left):
    """The vector at `arrived`, or zeros if it is 0."""
    value = splat(f32(0.0))
    if arrived != 0:
        value = load_part(arrived + offset, left)
    return value


def _forward(of: CellFormula) -> list[str]:
    head, *others = of.after
    loads = {f"x{i}": f"_from_x(x, offset, {i}, size, left)" for i in range(of.blocks)}
    loads |= {f"r{i}": f"_from_h(room, apart, bias, {i}, size, left)" for i in range(of.blocks)}
    loads |= {head: "load_part(h, left)"}
    loads |= {name: f"load_part(c + {i} * c_step, left)" for i, name in enumerate(others)}
    results = [*of.after.values(), *of.keeps.values()]
    # Everything is read before anything is computed: reads branch, and computations without branches overlap.
    read = [each for each in subexpressions(*results) if each.text in loads]
    lines, texts = statements_of([*read, *results], loads)
    texts = texts[len(read) :]
    stored = texts[len(of.after) :]
    if stored:
        stores = (f"    store_part(kept + {4 * i} * size, {text}, left)" for i, text in enumerate(stored))
        lines += ["if kept != 0:", *stores]
    lines += [f"store_part(after + {i} * after_step, {texts[1 + i]}, left)" for i in range(len(others))]
    return [*lines, f"store_part(y, {texts[0]}, left)"]


def _backward(of: CellFormula) -> list[str]:
    head, *others = of.after
    loads = {f"g_{name}": f"arrived_or_zero(arrived, {i} * far, left)" for i, name in enumerate(others)}
    loads |= {name: f"load_part(kept + {4 * i} * size, left)" for i, name in enumerate(of.keeps)}
    loads |= {head: "load_part(h, left)"}
    loads |= {name: f"load_part(c + {i} * c_step, left)" for i, name in enumerate(others)}
    loads |= {f"{head}_after": "load_part(y, left)"}
    loads |= {f"{name}_after": f"load_part(after + {i} * after_step, left)" for i, name in enumerate(others)}
    results = [*of.back.x, *(of.back.r if of.back.x != of.back.r else ()), *of.back.direct.values()]
    whole = {variable(f"g_{head}"): node("joined", variable("gy")) if head in of.direct else variable("gy")}
    for each in subexpressions(*results):
        if each.op == "add" and each.args[1].text.removeprefix("g_") in others:
            whole[each] = node(f"joined{others.index(each.args[1].text[2:])}", substitute(each.args[0], whole))
    results = [substitute(each, whole) for each in results]
    words = {f"joined{i}": f"add_arrived({{0}}, arrived, {i} * far, left)" for i in range(len(others))}
    words |= {"joined": "add_arrived({0}, arrived, 0, left)"}
    # Everything is read before anything is computed: LLVM orders sums by that, and bits depend on it.
    read = [variable(name) for name in loads if variable(name) in subexpressions(*results)]
    lines, texts = statements_of([*read, *results], {**loads, **words})
    lines += [f"made{i} = {text}" for i, text in enumerate(texts[len(read) :])]
    places = [f"g_x + {4 * i} * size" for i in range(of.blocks)]
    places += [f"g_h + {4 * i} * size" for i in range(of.blocks) if of.back.x != of.back.r]
    places += [f"carry + {i} * far" for i in range(len(of.direct))]
    return [*lines, *(f"store_part({place}, made{i}, left)" for i, place in enumerate(places))]


_WORDS = (*WORDS, _from_h, _from_x, arrived_or_zero, add_arrived, load_part, store_part)

forward = kernel_by_code(
    __name__,
    "forward",
    "x offset room apart bias h c c_step y kept after after_step size left",
    map(_forward, CELLS.values()),
    _WORDS,
)
"""One step.

Everything is an address, of the units of one row: ``x`` pre-activations from the layer's input, ``room`` products of
``h``, ``apart`` bytes from block to block, ``offset`` and ``bias`` what is added to these (0: nothing); ``h`` and ``c``
the states before, where those after the second are ``c_step`` bytes apart; for results ``y``, ``kept`` (0: not
stored), and ``after`` for the states after the first, ``after_step`` bytes apart.
"""

backward = kernel_by_code(
    __name__,
    "backward",
    "gy arrived far y kept after after_step h c c_step g_x g_h carry size left",
    map(_backward, CELLS.values()),
    _WORDS,
)
"""One step back.

``gy`` is the gradient of h after the step, without the part at ``arrived`` (0: none), which is of the other
states, or of h if there are none; the rest are addresses as in `forward`. ``g_h`` is written only if it differs
from ``g_x``. ``carry`` gets the gradients of states before the step that do not go through products. Of several states
they are ``far`` bytes apart, there and at ``arrived``.
"""
