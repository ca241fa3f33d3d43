"""Steps of products with packed weights: the kernel, its rounding, and the prepared rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.amx.amx_scratch import matrix_scratch
from volumetric.devices.cpu.kernels.maths import ACTIVATIONS
from volumetric.devices.cpu.kernels.mixtures import each_expert
from volumetric.devices.cpu.kernels.panel_microkernels import float_tile_shape, integer_tile_shape
from volumetric.devices.cpu.kernels.panels import ROUNDINGS, prepared_bytes
from volumetric.devices.cpu.kernels.panels import ROWS as PANEL_ROWS
from volumetric.devices.cpu.kernels.products import (
    PACKED_WIDE,
    PRODUCT_ARGUMENTS,
    UNGATED,
    gating_code,
    tile_scratch,
    vector_scratch,
)
from volumetric.devices.cpu.placement import padded_bytes
from volumetric.devices.cpu.resident_weights import PanelMatrix
from volumetric.devices.cpu.rows.elements import NORMS
from volumetric.devices.cpu.rows.row_step_builder import RowStepBuilder, rule
from volumetric.devices.cpu.step_builder import OperationStep
from volumetric.graph.operations.rowwise import LINEAR
from volumetric.graph.ops import Node


@rule("linear")
def linear(builder: RowStepBuilder, node: Node) -> None:
    """Products side by side."""
    products(builder, node, node.inputs[0], node.outputs[0])


def products(builder: RowStepBuilder, node: Node, source: int, target: int) -> None:
    """Append the products of the rows of `source` with the matrices of a node, side by side in `target`."""
    form, attrs = builder.form(node), _attrs(node)
    residual = node.inputs[1] if attrs["residual"] else -1
    rest = (residual,) if residual >= 0 else ()
    prepared, before = source, None
    for matrix in builder.settings.weights.matrices(node):
        rounding = builder.settings.rounding_of(matrix)
        fresh, before = before != rounding, rounding
        name = {"few": "vector_product", "some": "rows_product"}.get(form)
        if name is None or (form == "some" and not matrix.form.is_coded):
            name = builder.settings.product_of_many(matrix)
        if fresh:
            prepared = source if form == "few" else prepare_rows(builder, node, matrix, source)
        arguments = _arguments(builder, node, matrix) | {"input": source, "output": target, "residual": residual}
        arguments |= {"prepared": prepared, "fresh": int(fresh)}
        more: dict[str, Any] = {"flat": f"columns of {target}", "shared": (target, *rest)}
        more |= {"over": rest if residual != source else (), "note": _note(matrix), "tail": node.tail}
        read = (source if form == "few" else prepared, *rest)
        constants = _constants(builder, node, matrix, name)
        builder.add(name, PRODUCT_ARGUMENTS, *constants, reads=read, writes=(target,), **more, **arguments)


def prepare_rows(builder: RowStepBuilder, node: Node, matrix: PanelMatrix, source: int) -> int:
    """Return the prepared rows of `source` for a product, after appending the step that prepares them."""
    if _is_direct(builder, node, matrix, source):
        return source
    arguments = _arguments(builder, node, matrix) | {"input": source, "output": -1, "residual": -1, "fresh": 1}
    arguments["prepared"] = prepared = builder.temporary(int(arguments["row_bytes"]))
    more: dict[str, Any] = {"flat": "tail" if node.tail else "rows", "shared": (source,), "note": str(matrix.k)}
    builder.add("prepare", PRODUCT_ARGUMENTS, tail=node.tail, reads=(source,), writes=(prepared,), **more, **arguments)
    return prepared


def expert_product(builder: RowStepBuilder, node: Node, matrix: PanelMatrix, name: str) -> OperationStep:
    """Return the product of an expert's rows with a matrix, or its preparation step, for `each_expert`."""
    arguments = _arguments(builder, node, matrix) | {
        "input": each_expert.INPUT,
        "prepared": each_expert.PREPARED,
        "output": each_expert.OUTPUT,
    }
    arguments |= {"residual": -1, "fresh": int(name == "prepare")}
    constants = () if name == "prepare" else _constants(builder, node, matrix, name)
    more: dict[str, Any] = {"note": _note(matrix), "tail": node.tail}
    return builder.step(name, PRODUCT_ARGUMENTS, *constants, reads=(), writes=(), **more, **arguments)


def _note(matrix: PanelMatrix) -> str:
    return f"{sum(matrix.rows)}x{matrix.k} {matrix.form.name}"


def _attrs(node: Node) -> Mapping[str, Any]:
    """Attributes of a product; a recurrence's product has the defaults of `LINEAR`."""
    return node.attrs if node.op == "linear" else {**LINEAR, **node.attrs}


def _is_direct(builder: RowStepBuilder, node: Node, matrix: PanelMatrix, source: int) -> bool:
    """Whether tiles read the rows of a value directly: without norm, rounding, padding or expansion."""
    rounding = builder.settings.rounding_of(matrix)
    plain = rounding == "float32" and _attrs(node)["norm"] is None
    return plain and prepared_bytes(matrix.k, rounding) == 4 * matrix.k == padded_bytes(builder.sizes[source])


def _constants(builder: RowStepBuilder, node: Node, matrix: PanelMatrix, name: str) -> tuple[str | int, ...]:
    form, rounding = matrix.form, builder.settings.rounding_of(matrix)
    exact = form.is_coded and rounding == "float32"
    kind = form.name + (":exact" if exact else ":rounded" if rounding == "bfloat16" else "")
    attrs = _attrs(node)
    common = (kind, ACTIVATIONS.index(attrs["activation"]), gating_code(attrs["limit"]) if matrix.gated else UNGATED)
    rows, wide = integer_tile_shape() if rounding == "int8" else float_tile_shape()
    if name == "matrix_product":
        builder.want_scratch(matrix_scratch(matrix.k, kind))
        return common
    if name == "tile_product":
        builder.want_scratch(tile_scratch(matrix.k, kind, rows, wide))
        return *common, rows, wide
    wide = PACKED_WIDE if form.is_coded else wide
    builder.want_scratch(vector_scratch(matrix.k, prepared_bytes(matrix.k, rounding), wide))
    return common if name == "rows_product" else (*common, wide)


def _arguments(builder: RowStepBuilder, node: Node, matrix: PanelMatrix) -> dict[str, int | float]:
    """Arguments of a product: its matrix, and the operations fused before and after it."""
    attrs, weights, params = _attrs(node), builder.settings.weights, builder.graph.keys_by_role(node)
    rounding = builder.settings.rounding_of(matrix)
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
        "columns": _columns(builder, node, matrix),
        "bias": gate,
        "softcap": float(attrs["softcap"] or 0.0),
        "up_bias": up,
        "panel_bytes": matrix.apart or matrix.panel_bytes,
        "limit": float(attrs["limit"] or 0.0),
        "up_offset": float(attrs["up_offset"]),
        "rounding": ROUNDINGS.index(rounding),
        "row_bytes": prepared_bytes(matrix.k, rounding),
    }


def _half(matrix: PanelMatrix, index: int) -> PanelMatrix:
    """One matrix of a gated pair, for its bias."""
    return replace(matrix, gated=False, rows=(matrix.rows[index],), keys=(matrix.keys[index],))


def _columns(builder: RowStepBuilder, node: Node, matrix: PanelMatrix) -> int:
    """Address of (first column, columns) for each panel of the matrix."""
    widths = node.attrs["parts"]
    starts = np.cumsum([0, *widths])
    pairs: list[tuple[int, int]] = []
    for part in matrix.parts[:1] if matrix.gated else matrix.parts:
        start = 0 if matrix.gated else int(starts[part])
        firsts = range(0, widths[part], PANEL_ROWS)
        pairs += [(start + first, min(PANEL_ROWS, widths[part] - first)) for first in firsts]
    return builder.settings.weights.small_array(("columns", tuple(pairs)), lambda: np.array(pairs, np.int32))
