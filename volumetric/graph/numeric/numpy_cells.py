"""The cells of recurrent layers by name, in NumPy, built from `volumetric.formula.cells`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from volumetric.base._typing import Array
from volumetric.formula import cells
from volumetric.graph.numeric.numpy_formulas import function_of
from volumetric.graph.numeric.recurrent_cell import Cell, States


def _step(of: cells.CellFormula) -> Callable[[Array, Array, States], tuple[States, States]]:
    blocks = [f"{kind}{i}" for kind in "xr" for i in range(of.blocks)]
    run = function_of(" ".join((*blocks, *of.after)), *of.after.values(), *of.keeps.values())

    def step(from_x: Array, from_h: Array, before: States) -> tuple[States, States]:
        pre = (part for both in (from_x, from_h) for part in np.split(both, of.blocks, axis=-1))
        values = run(*pre, *before)
        return values[: len(of.after)], values[len(of.after) :]

    return step


def _back(of: cells.CellFormula) -> Callable[[States, States, States, States], tuple[Array, Array, States]]:
    states = (*of.after, *(f"{name}_after" for name in of.after), *(f"g_{name}" for name in of.after))
    run = function_of(" ".join((*states, *of.keeps)), *of.back.x, *of.back.r, *of.back.direct.values())

    def back(saved: States, before: States, after: States, g: States) -> tuple[Array, Array, States]:
        gradients = run(*before, *after, *g, *saved)
        x, r = (np.concatenate(gradients[n * of.blocks : (n + 1) * of.blocks], axis=-1) for n in (0, 1))
        return x, r, gradients[2 * of.blocks :]

    return back


CELLS: Mapping[str, Cell] = MappingProxyType(
    {
        name: Cell(
            name=name,
            blocks=of.blocks,
            states=tuple(of.after),
            keeps=tuple(of.keeps),
            direct=of.direct,
            apart=of.back.x != of.back.r,
            step=_step(of),
            back=_back(of),
        )
        for name, of in cells.CELLS.items()
    }
)
"""Name → cell. Kernels use the same names."""
