"""Steps of mixtures: few rows run all experts that any of them chose, many rows are grouped by expert.

Few rows (decoding) run products under predicates, expert by expert, without moving data. Many rows are sorted by
expert; a prepared row is copied to each of its pairs of row and expert, and the products run over an expert's pairs
alone. Sums have the same terms in the same order, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from volumetric.devices.cpu.kernels.mixtures.each_expert import EACH_EXPERT_ARGUMENTS
from volumetric.devices.cpu.kernels.mixtures.expert_routes import ROUTE_ARGUMENTS, SPREAD_ARGUMENTS, UNITE_ARGUMENTS
from volumetric.devices.cpu.kernels.panels import BY_NAME, prepared_bytes
from volumetric.devices.cpu.placement import padded_bytes
from volumetric.devices.cpu.resident_weights import PanelMatrix
from volumetric.devices.cpu.rows.products import expert_product, prepare_rows, products
from volumetric.devices.cpu.rows.row_step_builder import RowStepBuilder, rule
from volumetric.devices.cpu.step_builder import Operation, OperationStep
from volumetric.graph.expert_fusion import expert_products
from volumetric.graph.ops import Node

_SCORING: dict[str, tuple[str, ...]] = {
    "given": (),
    "largest": ("keep_largest", "unary"),
    "softmax": ("keep_largest", "softmax"),
    "softmax_all": ("softmax", "keep_largest", "unary"),
}
"""Scoring of a mixture → the operations that compute weights from choices."""


@rule("experts")
def experts(builder: RowStepBuilder, node: Node) -> None:
    """A mixture of experts, including the choice before it and the sum after it."""
    pairs = list(expert_products(builder.graph, node))
    weights = _weights(builder, node)
    if builder.form(node) == "few" or not _have_one_form(builder, pairs):
        _predicated_experts(builder, node, pairs, weights)
    else:
        _grouped_experts(builder, node, pairs, weights)


def _weights(builder: RowStepBuilder, node: Node) -> int:
    """Append the computation of weights from choices, and return their value."""
    value = _named_input(node, "choice")
    attrs = {"k": node.attrs["top_k"], "name": "relu", "alpha": 1.0, "beta": 0.0}
    for op in _SCORING[node.attrs["scoring"]]:
        if op != "keep_largest" or node.attrs["top_k"] < node.attrs["count"]:
            output = builder.value(node.attrs["count"])
            _append(builder, node, op, (value,), output, attrs)
            value = output
    return value


def _append(
    builder: RowStepBuilder, node: Node, op: str, inputs: Sequence[int], output: int, attrs: dict[str, Any]
) -> None:
    """Append the steps of one operation of a mixture."""
    expanded = replace(node, op=op, inputs=tuple(inputs), outputs=(output,), attrs=MappingProxyType(attrs))
    rule.append(builder, expanded)


def _named_input(node: Node, role: str) -> int:
    tensor = node.input_by_role(role)
    if tensor is None:
        raise KeyError(role)
    return tensor


# ---- few rows


def _predicated_experts(builder: RowStepBuilder, node: Node, pairs: Sequence[tuple[Node, Node]], weights: int) -> None:
    x, out = _named_input(node, "x"), node.outputs[0]
    width, branches = builder.width(out), []
    for expert, (first, last) in enumerate(pairs):
        hidden, branch, at = builder.value(_hidden(first)), builder.value(width), len(builder.steps)
        products(builder, first, x, hidden)
        products(builder, last, hidden, branch)
        builder.add_predicate(at, weights, expert)
        branches.append(branch)
    residual = node.input_by_role("residual")
    mixed = out if residual is None else builder.value(width)
    _append(builder, node, "mix", (weights, *branches), mixed, {"weighted": True})
    if residual is not None:
        _append(builder, node, "binary", (mixed, residual), out, {"name": "add"})


def _hidden(first: Node) -> int:
    """Output width of an expert's first product."""
    return first.attrs["parts"][0]


# ---- many rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _RouteBuffers:
    """The slots of a call's routing tables.

    Attributes
    ----------
    count, most : number of experts, and maximum per row
    starts, rows, factors, places : slots, see `ROUTE_ARGUMENTS`
    """

    count: int
    most: int
    starts: int
    rows: int
    factors: int
    places: int

    @property
    def all(self) -> tuple[int, ...]:
        """Slots of all of it."""
        return self.starts, self.rows, self.factors, self.places


def _have_one_form(builder: RowStepBuilder, pairs: Sequence[tuple[Node, Node]]) -> bool:
    """Whether the matrices of all experts have one form, so that their rows are prepared in the same way."""

    def forms(nodes: Sequence[Node]) -> set[tuple[object, ...]]:
        matrices = [builder.settings.weights.matrices(node) for node in nodes]
        return {(len(some), some[0].form.name, some[0].gated) for some in matrices}

    formats = [forms([pair[i] for pair in pairs]) for i in range(2)]
    return all(len(some) == 1 and next(iter(some))[0] == 1 for some in formats)


def _grouped_experts(builder: RowStepBuilder, node: Node, pairs: Sequence[tuple[Node, Node]], weights: int) -> None:
    """Append a mixture whose rows are sorted by expert, so that each matrix is read once for all its rows."""
    first, last = pairs[0]
    out, width, inner = node.outputs[0], builder.width(node.outputs[0]), _hidden(first)
    routes = _route(builder, node, weights)
    [matrix] = builder.settings.weights.matrices(first)
    ready = prepare_rows(builder, first, matrix, _named_input(node, "x"))
    size = _row_bytes(builder, matrix)
    spread = _pairs(builder, routes, size)
    arguments: dict[str, Any] = {"input": ready, "row_bytes": size, "count": routes.count, "starts": routes.starts}
    arguments |= {"rows": routes.rows, "output": spread, "tail": node.tail}
    builder.add("spread", SPREAD_ARGUMENTS, reads=(ready, routes.starts, routes.rows), writes=(spread,), **arguments)
    hidden_bytes, output_bytes = padded_bytes(4 * inner), padded_bytes(4 * width)
    hidden, outputs = _pairs(builder, routes, hidden_bytes), _pairs(builder, routes, output_bytes)
    steps = _products(builder, [pair[0] for pair in pairs])
    _add_each_expert(builder, routes, steps, (spread, size), (hidden, hidden_bytes))
    [matrix] = builder.settings.weights.matrices(last)
    second, size = hidden, _row_bytes(builder, matrix)
    if builder.settings.rounding_of(matrix) != "float32" or not size == hidden_bytes == 4 * inner:
        second = _pairs(builder, routes, size)
        _add_each_expert(
            builder, routes, [expert_product(builder, last, matrix, "prepare")], (hidden, hidden_bytes), (second, size)
        )
    _add_each_expert(
        builder, routes, _products(builder, [pair[1] for pair in pairs]), (second, size), (outputs, output_bytes)
    )
    residual = node.input_by_role("residual")
    arguments = {"input": outputs, "pair_bytes": output_bytes, "most": routes.most, "factors": routes.factors}
    arguments |= {
        "places": routes.places,
        "residual": -1 if residual is None else residual,
        "output": out,
        "width": width,
    }
    reads = (outputs, routes.factors, routes.places, *(() if residual is None else (residual,)))
    builder.add("unite", UNITE_ARGUMENTS, reads=reads, writes=(out,), tail=node.tail, **arguments)


def _route(builder: RowStepBuilder, node: Node, weights: int) -> _RouteBuffers:
    count, most = node.attrs["count"], node.attrs["top_k"]
    sizes = {"starts": count + 2, "rows": most, "factors": most, "places": most}
    routes = _RouteBuffers(
        count=count, most=most, **{name: builder.temporary(4 * size) for name, size in sizes.items()}
    )
    arguments: dict[str, Any] = {"weights": weights, "count": count, "most": most, "starts": routes.starts}
    arguments |= {"rows": routes.rows, "factors": routes.factors, "places": routes.places, "tail": node.tail}
    builder.add("route", ROUTE_ARGUMENTS, reads=(weights,), writes=routes.all, **arguments)
    return routes


def _row_bytes(builder: RowStepBuilder, matrix: PanelMatrix) -> int:
    """Bytes of a row prepared for a matrix."""
    return prepared_bytes(matrix.k, builder.settings.rounding_of(matrix))


def _pairs(builder: RowStepBuilder, routes: _RouteBuffers, size: int) -> int:
    """Return a value with room for `size` bytes per possible pair."""
    return builder.temporary(routes.most * size)


def _products(builder: RowStepBuilder, nodes: Sequence[Node]) -> list[OperationStep]:
    """Append the product of each expert, in the form for many rows if an expert may have so many."""
    matrices = [builder.settings.weights.matrices(node)[0] for node in nodes]
    direct = builder.form(nodes[0]) == "some" and matrices[0].form.is_coded
    name = "rows_product" if direct else builder.settings.product_of_many(matrices[0])
    return [expert_product(builder, node, matrix, name) for node, matrix in zip(nodes, matrices, strict=True)]


def _add_each_expert(
    builder: RowStepBuilder,
    routes: _RouteBuffers,
    steps: Sequence[OperationStep],
    source: tuple[int, int],
    target: tuple[int, int],
) -> None:
    """Append a step that runs each of `steps` over the rows of as many experts.

    Parameters
    ----------
    source, target : slot of the value read and written, and its bytes per pair
    """
    some = steps[0]
    prepares = some.name == "prepare"
    # Tiles of integer panels unpack these first, which pays only for many rows.
    kind = "" if prepares else str(some.constants[0]).partition(":")[0]
    direct = some.name in ("tile_product", "matrix_product") and BY_NAME[kind].is_coded
    step = builder.step(
        "each_expert",
        EACH_EXPERT_ARGUMENTS[2:],
        reads=(source[0], routes.starts),
        writes=(target[0],),
        starts=routes.starts,
        experts=routes.count // len(steps),
        input=source[0],
        input_bytes=source[1],
        prepared=target[0] if prepares else source[0],
        prepared_bytes=target[1] if prepares else source[1],
        output=target[0],
        output_bytes=target[1],
        few=Operation("rows_product", some.constants[:3]) if direct else 0,
        few_rows=builder.settings.direct_rows if direct else 0,
        tail=some.tail,
        note=f"{len(steps)} {some.note}",
    )
    builder.steps.append(replace(step, body=tuple(steps)))
