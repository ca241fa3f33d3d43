"""Steps of products with packed weights: the kernel, its rounding, and the prepared rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.amx.layout import matrix_scratch
from volumetric.devices.cpu.kernels.maths import ACTIVATIONS
from volumetric.devices.cpu.kernels.mixtures import each
from volumetric.devices.cpu.kernels.panels import ROUNDINGS, prepared_bytes
from volumetric.devices.cpu.kernels.panels import ROWS as PANEL_ROWS
from volumetric.devices.cpu.kernels.products import (
    PACKED_WIDE,
    PRODUCT_ARGUMENTS,
    UNGATED,
    gating,
    tile_scratch,
    vector_scratch,
)
from volumetric.devices.cpu.kernels.tiles import float_tile_shape, integer_tile_shape
from volumetric.devices.cpu.placement import padded
from volumetric.devices.cpu.resident import Matrix
from volumetric.devices.cpu.rows.draft import RowDraft, rule
from volumetric.devices.cpu.rows.elements import NORMS
from volumetric.devices.cpu.steps import Step
from volumetric.graph.operations.rowwise import LINEAR
from volumetric.graph.ops import Node


@rule("linear")
def linear(draft: RowDraft, node: Node) -> None:
    """Products side by side."""
    products(draft, node, node.inputs[0], node.outputs[0])


def products(draft: RowDraft, node: Node, source: int, target: int) -> None:
    """Append the products of the rows of `source` with the matrices of a node, side by side in `target`."""
    form, attrs = draft.form(node), _attrs(node)
    residual = node.inputs[1] if attrs["residual"] else -1
    rest = (residual,) if residual >= 0 else ()
    prepared, before = source, None
    for matrix in draft.settings.weights.matrices(node):
        rounding = draft.settings.rounding(matrix)
        fresh, before = before != rounding, rounding
        name = {"few": "vector_product", "some": "rows_product"}.get(form)
        if name is None or (form == "some" and not matrix.form.is_coded):
            name = draft.settings.product_of_many(matrix)
        if fresh:
            prepared = source if form == "few" else made_ready(draft, node, matrix, source)
        arguments = _arguments(draft, node, matrix) | {"input": source, "output": target, "residual": residual}
        arguments |= {"prepared": prepared, "fresh": int(fresh)}
        more: dict[str, Any] = {"flat": f"columns of {target}", "shared": (target, *rest)}
        more |= {"over": rest if residual != source else (), "note": _note(matrix), "tail": node.tail}
        read = (source if form == "few" else prepared, *rest)
        constants = _constants(draft, node, matrix, name)
        draft.add(name, PRODUCT_ARGUMENTS, *constants, reads=read, writes=(target,), **more, **arguments)


def made_ready(draft: RowDraft, node: Node, matrix: Matrix, source: int) -> int:
    """Return the prepared rows of `source` for a product, after appending the step that prepares them."""
    if _is_direct(draft, node, matrix, source):
        return source
    arguments = _arguments(draft, node, matrix) | {"input": source, "output": -1, "residual": -1, "fresh": 1}
    arguments["prepared"] = prepared = draft.temporary(int(arguments["row_bytes"]))
    more: dict[str, Any] = {"flat": "tail" if node.tail else "rows", "shared": (source,), "note": str(matrix.k)}
    draft.add("prepare", PRODUCT_ARGUMENTS, tail=node.tail, reads=(source,), writes=(prepared,), **more, **arguments)
    return prepared


def paired_product(draft: RowDraft, node: Node, matrix: Matrix, name: str) -> Step:
    """Return the product of an expert's rows with a matrix, or its preparation step, for `each_expert`."""
    arguments = _arguments(draft, node, matrix) | {
        "input": each.INPUT,
        "prepared": each.PREPARED,
        "output": each.OUTPUT,
    }
    arguments |= {"residual": -1, "fresh": int(name == "prepare")}
    constants = () if name == "prepare" else _constants(draft, node, matrix, name)
    more: dict[str, Any] = {"note": _note(matrix), "tail": node.tail}
    return draft.step(name, PRODUCT_ARGUMENTS, *constants, reads=(), writes=(), **more, **arguments)


def _note(matrix: Matrix) -> str:
    return f"{sum(matrix.rows)}x{matrix.k} {matrix.form.name}"


def _attrs(node: Node) -> Mapping[str, Any]:
    """Attributes of a product; a recurrence's product has the defaults of `LINEAR`."""
    return node.attrs if node.op == "linear" else {**LINEAR, **node.attrs}


def _is_direct(draft: RowDraft, node: Node, matrix: Matrix, source: int) -> bool:
    """Whether tiles read the rows of a value directly: without norm, rounding, padding or expansion."""
    rounding = draft.settings.rounding(matrix)
    plain = rounding == "float32" and _attrs(node)["norm"] is None
    return plain and prepared_bytes(matrix.k, rounding) == 4 * matrix.k == padded(draft.sizes[source])


def _constants(draft: RowDraft, node: Node, matrix: Matrix, name: str) -> tuple[str | int, ...]:
    form, rounding = matrix.form, draft.settings.rounding(matrix)
    exact = form.is_coded and rounding == "float32"
    kind = form.name + (":exact" if exact else ":rounded" if rounding == "bfloat16" else "")
    attrs = _attrs(node)
    common = (kind, ACTIVATIONS.index(attrs["activation"]), gating(attrs["limit"]) if matrix.gated else UNGATED)
    rows, wide = integer_tile_shape() if rounding == "int8" else float_tile_shape()
    if name == "matrix_product":
        draft.want_scratch(matrix_scratch(matrix.k, kind))
        return common
    if name == "tile_product":
        draft.want_scratch(tile_scratch(matrix.k, kind, rows, wide))
        return *common, rows, wide
    wide = PACKED_WIDE if form.is_coded else wide
    draft.want_scratch(vector_scratch(matrix.k, prepared_bytes(matrix.k, rounding), wide))
    return common if name == "rows_product" else (*common, wide)


def _arguments(draft: RowDraft, node: Node, matrix: Matrix) -> dict[str, int | float]:
    """Arguments of a product: its matrix, and the operations fused before and after it."""
    attrs, weights, params = _attrs(node), draft.settings.weights, draft.graph.keys(node)
    rounding = draft.settings.rounding(matrix)
    biases = [params.get(f"bias.{part}") for part in matrix.parts]
    if matrix.gated:
        gate, up = (weights.biases(_half(matrix, i), [biases[i]]) for i in (0, 1))
    else:
        gate, up = weights.biases(matrix, biases), 0
    return {
        "k": matrix.k,
        "norm": NORMS[attrs["norm"]],
        "eps": float(attrs["norm_eps"]),
        "norm_weight": weights.vector(params.get("norm.weight"), unit_offset=bool(attrs["norm_unit_offset"])),
        "norm_bias": weights.vector(params.get("norm.bias")),
        "weights": matrix.base,
        "panel_stride": matrix.panel_stride,
        "panels": matrix.panels,
        "units": matrix.form.units(matrix.k),
        "columns": _columns(draft, node, matrix),
        "bias": gate,
        "softcap": float(attrs["softcap"] or 0.0),
        "up_bias": up,
        "panel_bytes": matrix.apart or matrix.panel_bytes,
        "limit": float(attrs["limit"] or 0.0),
        "up_offset": float(attrs["up_offset"]),
        "rounding": ROUNDINGS.index(rounding),
        "row_bytes": prepared_bytes(matrix.k, rounding),
    }


def _half(matrix: Matrix, index: int) -> Matrix:
    """One matrix of a gated pair, for its bias."""
    return replace(matrix, gated=False, rows=(matrix.rows[index],), keys=(matrix.keys[index],))


def _columns(draft: RowDraft, node: Node, matrix: Matrix) -> int:
    """Address of (first column, columns) for each panel of the matrix."""
    widths = node.attrs["parts"]
    starts = np.cumsum([0, *widths])
    pairs: list[tuple[int, int]] = []
    for part in matrix.parts[:1] if matrix.gated else matrix.parts:
        start = 0 if matrix.gated else int(starts[part])
        firsts = range(0, widths[part], PANEL_ROWS)
        pairs += [(start + first, min(PANEL_ROWS, widths[part] - first)) for first in firsts]
    return draft.settings.weights.keep(("columns", tuple(pairs)), lambda: np.array(pairs, np.int32))
