"""How a recurrent cell computes one number: its gates and states, each with its formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from volumetric.base._typing import Array
from volumetric.formula.cells import CELLS, CellFormula
from volumetric.formula.expression import Expression, substitute, variable
from volumetric.graph.operations import OPS
from volumetric.graph.operations.recurrent_inputs import recurrent_inputs
from volumetric.graph.ops import Node
from volumetric.scope.inspection.formula_text import evaluate_formula, formula_text, variables_in
from volumetric.scope.inspection.number_step import NumberStep, Operand, Term, read, sum_step
from volumetric.scope.inspection.row_graph import RowGraph


@dataclass(frozen=True, slots=True)
class _Unit:
    """One unit of a cell at one step.

    Attributes
    ----------
    leaf : name of a variable of the formula (x0, r0, a state before the step) → its operand
    """

    cell: CellFormula
    leaf: Callable[[str], Operand]

    def state(self, name: str) -> NumberStep:
        """Return how a state is computed."""
        return self._step(self.cell.after[name])

    def _step(self, of: Expression) -> NumberStep:
        named = {value: f"{name}′" for name, value in self.cell.after.items() if value.args}
        named |= {value: name for name, value in self.cell.keeps.items() if value.op != "variable"}
        inside = {value: name for value, name in named.items() if value != of}
        shown = of.with_args(*(substitute(arg, {v: variable(n) for v, n in inside.items()}) for arg in of.args))
        parts = {name: value for value, name in inside.items()}
        operands: list[Operand] = []
        for name in variables_in(shown):
            if name in parts:
                step = self._step(parts[name])
                operands.append(Operand(name=name, value=step.value, step=step))
            else:
                operands.append(self.leaf(name))
        letters: Mapping[str, float] = {of.name: of.value for of in operands}
        renamed = {variable(name): variable(f"v{n}") for n, name in enumerate(letters)}  # ′ is no letter of Python
        value = evaluate_formula(substitute(shown, renamed), {f"v{n}": of for n, of in enumerate(letters.values())})
        return NumberStep(formula=formula_text(shown), value=value, operands=tuple(operands))


def cell_rule(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    """Explain a number of ``cell``: a state after one step."""
    cell = CELLS[node.attrs["cell"]]
    states = tuple(cell.after)
    from_x, from_h, bias, *before = node.inputs
    rows, wide = graph.values[from_x].shape
    size = wide // cell.blocks
    which, (row, unit) = 0, divmod(flat, size)
    if k == 1 and len(states) > 1:
        which, row = 1 + row // rows, row % rows
    elif k:
        return NumberStep(formula="a gate of the cell", value=float(graph.values[node.outputs[k]].flat[flat]))
    sets = graph.values[bias].shape[0]

    def leaf(name: str) -> Operand:
        block = int(name[1:]) * size + unit if name[0] in "xr" and name[1:].isdigit() else 0
        if name[0] == "x" and name[1:].isdigit():
            terms = [Term((read(graph, from_x, row * wide + block, "x"),)),
                     Term((read(graph, bias, row // (rows // sets) * wide + block, "b"),))]  # fmt: skip
            step = sum_step(terms, "x + b")
            return Operand(name=name, value=step.value, step=step)
        if name[0] == "r" and name[1:].isdigit():
            return read(graph, from_h, row * wide + block, name)
        at = cell.direct.index(name)
        return read(graph, before[0], (at * rows + row) * size + unit, name)

    return _Unit(cell, leaf).state(states[which])


def recurrence_rule(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    """Explain a number of ``recurrence``: an output, or a state after the last row."""
    cell = CELLS[node.attrs["cell"]]
    roles = dict(zip(node.attrs["roles"], node.inputs, strict=True))
    x = roles["x"]
    rows, wide = graph.values[x].shape
    size = wide // cell.blocks
    row, unit = divmod(flat, size) if not k else (rows - 1, flat)
    states = tuple(cell.after)
    arrays = [graph.values[i] for i in node.inputs]
    earlier = {name: graph.values[roles[name]] for name in states}
    if row:
        arrays[node.attrs["roles"].index("x")] = graph.values[x][:row]
        earlier = dict(zip(states, OPS["recurrence"].run(arrays, node.attrs)[1:], strict=True))
    source = {} if row else {name: roles[name] for name in states}
    unit_step = _products(
        graph, cell, size, unit, (x, row * wide), roles["weight.0"], roles.get("bias.0"), earlier, source
    )
    return unit_step.state(states[max(k - 1, 0)])


def recurrent_rule(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    """Explain a number of ``recurrent``: an output, or another state after the last step."""
    cell = CELLS[node.attrs["cell"]]
    states = tuple(cell.after)
    from_x, weight, *rest = node.inputs
    starts, bias, keep = recurrent_inputs(rest, node.attrs)
    _, length, wide = graph.values[from_x].shape
    size = wide // cell.blocks
    if k >= len(states) or keep:
        note = "a number that a recurrent layer stores" if k >= len(states) else "a step of a layer with resets"
        return NumberStep(formula="", value=float(graph.values[node.outputs[k]].flat[flat]), note=note)
    step = length - 1
    if k:
        batch, unit = divmod(flat, size)
    else:
        batch, step, unit = (int(i) for i in np.unravel_index(flat, graph.values[node.outputs[0]].shape))
    earlier = {name: graph.values[i][batch : batch + 1] for name, i in zip(states, starts, strict=True)}
    source = {} if step else dict(zip(states, starts, strict=True))
    if step:
        arrays = [graph.values[i] for i in node.inputs]
        arrays[0] = arrays[0][:, :step]
        y, *others = OPS["recurrent"].run(arrays, node.attrs)
        after = [y[:, -1], *others[: len(states) - 1]]
        earlier = {name: value[batch : batch + 1] for name, value in zip(states, after, strict=True)}
    place = (from_x, (batch * length + step) * wide)
    return _products(graph, cell, size, unit, place, weight, bias[0] if bias else None, earlier, source, batch).state(
        states[k]
    )


def _products(
    graph: RowGraph,
    cell: CellFormula,
    size: int,
    unit: int,
    x: tuple[int, int],
    weight: int,
    bias: int | None,
    earlier: Mapping[str, Array],
    source: Mapping[str, int],
    batch: int = 0,
) -> _Unit:
    """Return a unit whose pre-activations from the step before are products.

    Parameters
    ----------
    x : tensor of the pre-activations from the input, and the element where the row begins
    earlier : states before the step, ``[1, size]``
    source : tensors of these, if they are states of the sequence, in which row `batch` counts
    """
    states = tuple(earlier)
    h = np.asarray(earlier[states[0]]).reshape(-1)
    width = graph.values[weight].shape[1]
    head = unit // width * width

    def leaf(name: str) -> Operand:
        if name in earlier:
            return Operand(
                name=name, value=float(earlier[name].flat[unit]), tensor=source.get(name), flat=batch * size + unit
            )
        block = int(name[1:]) * size + unit
        if name[0] == "x":
            return read(graph, x[0], x[1] + block, name)
        terms = [
            Term((read(graph, weight, block * width + j, "W"),
                  Operand(name=f"{states[0]}[{head + j}]", value=float(h[head + j]),
                          tensor=source.get(states[0]), flat=batch * size + head + j)))
            for j in range(width)
        ]  # fmt: skip
        terms += [] if bias is None else [Term((read(graph, bias, block, "b"),))]
        step = sum_step(terms, f"Σ W · {states[0]}" + (" + b" if bias is not None else ""), "from the step before")
        return Operand(name=name, value=step.value, step=step)

    return _Unit(cell, leaf)
