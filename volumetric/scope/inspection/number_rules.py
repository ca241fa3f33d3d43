"""How each operation of a graph computes one number: products, sums, norms, softmax and functions of one or two."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.formula.binary_functions import PAIRS
from volumetric.formula.expression import constant, substitute, variable
from volumetric.formula.unary_functions import FUNCTIONS
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.graph.interpret import Interpreter
from volumetric.graph.ops import Node
from volumetric.scope.inspection.attention_rules import attend_rule, edge_attend_rule
from volumetric.scope.inspection.formula_text import evaluate_formula, formula_text
from volumetric.scope.inspection.number_step import NumberStep, Operand, Rule, Term, read, sum_step
from volumetric.scope.inspection.recurrent_rules import cell_rule, recurrence_rule, recurrent_rule
from volumetric.scope.inspection.row_graph import RowGraph

LINEAR_IN: Final[Mapping[str, tuple[int, ...]]] = {
    "fold": (0,), "pool_sum": (0,), "pool_max": (0,), "depthwise_conv": (0,), "rope": (0,), "linear_scan": (0, 2),
    "rotate_scan": (0, 3), "scatter_rows": (0,), "pool_spread": (0,),
}  # fmt: skip
"""Operations that are linear in some of their inputs: the coefficients are their gradients."""


def apply_activation(name: str, s: Operand) -> NumberStep:
    """Return the step ``act(s)``."""
    value = FUNCTIONS[name].value
    text = formula_text(value, {"x": s.name}) if len(formula_text(value)) < 40 else f"{name}({s.name})"
    return NumberStep(formula=text, value=evaluate_formula(value, {"x": s.value}), operands=(s,))


def _unary(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    name, x = node.attrs["name"], read(graph, node.inputs[0], flat, "x")
    if name != "affine":
        return apply_activation(name, x)
    alpha, beta = node.attrs["alpha"], node.attrs["beta"]
    parts = [f"{alpha:.6g} · x"] if alpha != 1 else ["x"]
    parts += [f"{abs(beta):.6g}"] if beta else []
    known = {variable("alpha"): constant(float(alpha)), variable("beta"): constant(float(beta))}
    whole = substitute(FUNCTIONS[name].value, known)
    text = (" − " if beta < 0 else " + ").join(parts)
    return NumberStep(formula=text, value=evaluate_formula(whole, {"x": x.value}), operands=(x,))


def _broadcast_place(shape: tuple[int, ...], of: tuple[int, ...], flat: int) -> int:
    """Return the element of a tensor of shape `of` that broadcasts to element `flat` of `shape`."""
    place = np.unravel_index(flat, shape)[len(shape) - len(of) :]
    own = tuple(0 if n == 1 else i for i, n in zip(place, of, strict=True))
    return int(np.ravel_multi_index(own, of)) if of else 0


def _binary(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    shape = graph.values[node.outputs[0]].shape
    a, b = (
        read(graph, i, _broadcast_place(shape, graph.values[i].shape, flat), letter)
        for i, letter in zip(node.inputs, "ab", strict=True)
    )
    value = PAIRS[node.attrs["name"]].value
    return NumberStep(
        formula=formula_text(value), value=evaluate_formula(value, {"a": a.value, "b": b.value}), operands=(a, b)
    )


def _gemm(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    a, b, *bias = node.inputs
    left, right = graph.values[a].shape, graph.values[b].shape
    g, m, n = (int(i) for i in np.unravel_index(flat, graph.values[node.outputs[0]].shape))
    inner = left[1] if node.attrs["trans_a"] else left[2]
    groups = node.attrs["groups"]
    terms: list[Term] = []
    for at in range(g, max(left[0], right[0], groups), groups) if inner and left[0] and right[0] else ():
        for j in range(inner):
            here = (at % left[0], *((j, m) if node.attrs["trans_a"] else (m, j)))
            there = (at % right[0], *((n, j) if node.attrs["trans_b"] else (j, n)))
            factors = (
                read(graph, a, int(np.ravel_multi_index(here, left)), "a"),
                read(graph, b, int(np.ravel_multi_index(there, right)), "b"),
            )
            terms.append(Term(factors))
    for i in bias:
        wide = graph.values[i].shape
        terms.append(Term((read(graph, i, n if len(wide) == 1 else g * wide[1] + n, "bias"),)))
    return _activated(sum_step(terms, "Σ a · b" + (" + bias" if bias else "")), node.attrs["activation"])


def _activated(s: NumberStep, activation: str) -> NumberStep:
    if activation == "linear":
        return s
    return apply_activation(activation, Operand(name="s", value=s.value, step=s))


def _linear(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    attrs = node.attrs
    roles = dict(zip(attrs["roles"], node.inputs, strict=True))
    row, column = divmod(flat, graph.values[node.outputs[0]].shape[1])
    if attrs["combine"] == "gated":
        gate, up = (
            Operand(name=name, value=step.value, step=step)
            for name, step in (
                ("g", _product(graph, roles, 0, row, column)),
                ("u", _product(graph, roles, 1, row, column)),
            )
        )
        return gate_step(gate, up, attrs)
    part = 0
    while column >= attrs["parts"][part]:
        column -= attrs["parts"][part]
        part += 1
    return _activated(_product(graph, roles, part, row, column), attrs["activation"])


def _product(graph: RowGraph, roles: Mapping[str, int], part: int, row: int, unit: int) -> NumberStep:
    """Return the step ``Σ_j W[unit, j] x[j] + b[unit]``."""
    x, weight = roles["x"], roles[f"weight.{part}"]
    wide = graph.values[x].shape[1]
    terms = [
        Term((read(graph, weight, unit * wide + j, "W"), read(graph, x, row * wide + j, "x"))) for j in range(wide)
    ]
    if f"bias.{part}" in roles:
        terms.append(Term((read(graph, roles[f"bias.{part}"], unit, "b"),)))
    return sum_step(terms, "Σ W · x" + (" + b" if f"bias.{part}" in roles else ""))


def gate_step(gate: Operand, up: Operand, attrs: Mapping[str, Any]) -> NumberStep:
    """Return the step ``act(g) · u`` of a gated product."""
    act, limit, offset = attrs["activation"], attrs["limit"], attrs["up_offset"]
    g, u = gate.value, up.value
    text = f"{act}(g) · u"
    if limit is not None:
        g, u = min(g, limit), max(min(u, limit), -limit) + offset
        text = f"{act}(min(g, {limit:g})) · (u within ±{limit:g}" + (f" + {offset:g})" if offset else ")")
    value = evaluate_formula(FUNCTIONS[act].value, {"x": g}) * u
    return NumberStep(formula=text, value=value, operands=(gate, up))


def _gated(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    gate, up = (read(graph, i, flat, name) for i, name in zip(node.inputs, "gu", strict=True))
    return gate_step(gate, up, node.attrs)


def _mix(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    weights, *branches = node.inputs
    row = flat // prod(graph.values[branches[0]].shape[1:])
    terms: list[Term] = []
    for i, branch in enumerate(branches):
        weight = read(graph, weights, row * len(branches) + i, "p")
        if not node.attrs["weighted"]:
            chosen = NumberStep(formula="1 if p is not 0, else 0", value=float(weight.value != 0), operands=(weight,))
            weight = Operand(name="chosen", value=chosen.value, step=chosen)
        terms.append(Term((weight, read(graph, branch, flat, "x"))))
    return sum_step(terms, "Σ p · x", "x are the outputs of the branches, p their weights")


def _reduce(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    [x], axes, name = node.inputs, node.attrs["axes"], node.attrs["name"]
    shape = graph.values[x].shape
    place = [np.array([i]) for i in np.unravel_index(flat, graph.values[node.outputs[0]].shape)]
    for axis in axes:
        place[axis] = np.arange(shape[axis])
    every = np.ravel_multi_index(np.ix_(*place), shape).ravel().tolist()
    numbers = [read(graph, x, i, "x") for i in every]
    if name == "max":
        values = np.array([of.value for of in numbers])
        best = numbers[int(np.argmax(values))]  # NaN wins, as in NumPy's max
        return NumberStep(formula=f"the largest of {len(numbers)} numbers x", value=best.value, operands=(best,))
    share = Operand(name="1/n", value=1 / len(numbers)) if name == "mean" else None
    terms = [Term((share, of) if share else (of,)) for of in numbers]
    return sum_step(terms, f"Σ x / {len(numbers)}" if share else "Σ x")


def _norm(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    x, *vectors = node.inputs
    wide = graph.values[x].shape[1]
    row, column = divmod(flat, wide)
    mean, rstd, shift = graph.values[node.outputs[1]][row]
    operands = [read(graph, x, flat, "x"), Operand(name="rstd", value=float(rstd))]
    value, text = operands[0].value, "x · rstd"
    if node.attrs["kind"] == "layer":
        operands.insert(1, Operand(name="mean", value=float(mean + shift)))
        value, text = value - float(mean) - float(shift), "(x − mean) · rstd"
    value *= float(rstd)
    for vector, letter in zip(vectors, ("gain", "bias"), strict=False):
        operand = read(graph, vector, column, letter)
        operands.append(operand)
        offset = bool(node.attrs["unit_offset"]) and letter == "gain"
        value = value + operand.value if letter == "bias" else value * (operand.value + offset)
        text += " + bias" if letter == "bias" else " · (1 + gain)" if offset else " · gain"
    what = "root of the mean square" if node.attrs["kind"] == "rms" else "standard deviation"
    note = f"rstd is 1 / the {what} of the {wide} numbers of the row (ε = {node.attrs['eps']:g})"
    return NumberStep(formula=text, value=value, operands=tuple(operands), note=note)


def _softmax(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    [x] = node.inputs
    wide = graph.values[x].shape[1]
    row = graph.values[x].reshape(-1, wide)[flat // wide]
    own = read(graph, x, flat, "x")
    top = float(row.max())
    with np.errstate(all="ignore"):
        total = float(np.exp(row - top).sum()) if np.isfinite(top) else float("nan")
        value = (
            float(np.exp(own.value - top) / total) if np.isfinite(top) else float(np.where(top == -np.inf, 0, np.nan))
        )
    numbers = (own, Operand(name="max", value=top), Operand(name="Σ", value=total))
    note = f"Σ is the sum of exp(x − max) over the {wide} numbers of the row"
    return NumberStep(formula="exp(x − max) / Σ", value=value, operands=numbers, note=note)


def _lookup(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    ids, weight, *more = node.inputs
    row, column = divmod(flat, graph.values[weight].shape[1])
    place = int(graph.values[ids][row]) + node.attrs["offset"]
    terms = [Term((Operand(name="scale", value=float(node.attrs["scale"])),
                   read(graph, weight, place * graph.values[weight].shape[1] + column, "W")))]  # fmt: skip
    terms += [Term((read(graph, i, flat, "x"),)) for i in more]
    return sum_step(terms, "scale · W" + (" + x" if more else ""), f"row {place} of the table")


def _keep_largest(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    x = read(graph, node.inputs[0], flat, "x")
    value = float(graph.values[node.outputs[0]].flat[flat])
    text = f"x if it is among the {node.attrs['k']} largest of its row, else −∞"
    return NumberStep(formula=text, value=value, operands=(x,))


def _linear_in(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    """Explain a number of an operation that is linear in some inputs by its gradients, which are the coefficients."""
    terms: list[Term] = []
    for i, slope in _coefficients(graph, node, flat).items():
        terms += [
            Term((Operand(name="c", value=float(slope.flat[at])), read(graph, i, at, "x")))
            for at in np.flatnonzero(slope).tolist()
        ]
    return sum_step(terms, "Σ c · x", "c are the coefficients of the operation: weights, shares or decays")


def _coefficients(graph: RowGraph, node: Node, flat: int) -> dict[int, Array]:
    work = GraphBuilder()
    inputs = [work.input(f"x{n}", graph.values[i].shape, graph.graph.tensors[i].dtype)
              for n, i in enumerate(node.inputs)]  # fmt: skip
    y = work.emit(node.op, inputs, **node.attrs)[0]
    seed = np.zeros(work.shape(y))
    seed.flat[flat] = 1
    wrt = [inputs[n] for n in LINEAR_IN[node.op]]
    slopes = differentiate(work, {y: work.constant(seed, "seed")}, wrt)
    back = work.finish([slopes[i] for i in wrt if i in slopes])
    args = [graph.values[node.inputs[inputs.index(i)]] for i in back.inputs]
    results = Interpreter(back, np.float64).run(args, {})
    return {node.inputs[inputs.index(i)]: of for i, of in zip((i for i in wrt if i in slopes), results, strict=True)}


RULES: Final[dict[str, Rule]] = {
    "unary": _unary, "binary": _binary, "gemm": _gemm, "linear": _linear, "gated": _gated, "mix": _mix,
    "reduce": _reduce, "norm": _norm, "softmax": _softmax, "lookup": _lookup, "keep_largest": _keep_largest,
    "attend": attend_rule, "edge_attend": edge_attend_rule, "cell": cell_rule, "recurrence": recurrence_rule,
    "recurrent": recurrent_rule, **dict.fromkeys(LINEAR_IN, _linear_in),
}  # fmt: skip
"""Operation → its rule."""
