"""Row-wise steps."""

from __future__ import annotations

from typing import Any

from volumetric.devices.cpu.kernels.formula_kernels import code_of
from volumetric.devices.cpu.kernels.gates import GATE_ARGUMENTS, LARGEST_ARGUMENTS, MIX_ARGUMENTS
from volumetric.devices.cpu.kernels.maths import ACTIVATIONS
from volumetric.devices.cpu.kernels.prepare import LAYER_NORM, NO_NORM, RMS_NORM
from volumetric.devices.cpu.kernels.products import gating_code
from volumetric.devices.cpu.kernels.row_operations import (
    EMBEDDING_ARGUMENTS,
    GATHER_ARGUMENTS,
    JOIN_ARGUMENTS,
    NORM_ARGUMENTS,
    POSITION_ARGUMENTS,
)
from volumetric.devices.cpu.kernels.softmax import SOFTMAX_ARGUMENTS
from volumetric.devices.cpu.kernels.unpack import FORMAT_CODES
from volumetric.devices.cpu.rows.row_step_builder import RowStepBuilder, rule
from volumetric.graph.ops import Node

NORMS = {None: NO_NORM, "rms": RMS_NORM, "layer": LAYER_NORM}


def _input_and_output(node: Node) -> dict[str, Any]:
    return {"input": node.inputs[0], "output": node.outputs[0]}


@rule("lookup")
def lookup(builder: RowStepBuilder, node: Node) -> None:
    """Rows of a table: one for each id, or for each position, added to other rows."""
    table = builder.settings.weights.table(builder.graph.keys_by_role(node)["weight"])
    code = FORMAT_CODES[table.form.name]
    arguments: dict[str, Any] = {"weights": table.address, "panel_stride": table.panel_stride, "k": table.k}
    arguments |= {"output": node.outputs[0]}
    x = node.input_by_role("x")
    if x is None:
        arguments |= {"input": node.inputs[0], "scale": float(node.attrs["scale"])}
        builder.add_by_rows("embedding", EMBEDDING_ARGUMENTS, node, code, **arguments)
    else:
        arguments |= {"input": x, "offset": int(node.attrs["offset"])}
        builder.add_by_rows("position_embedding", POSITION_ARGUMENTS, node, code, **arguments)


@rule("norm")
def norm(builder: RowStepBuilder, node: Node) -> None:
    """Norm of rows."""
    attrs, params, weights = node.attrs, builder.graph.keys_by_role(node), builder.settings.weights
    arguments: dict[str, Any] = {"width": builder.width(node.inputs[0]), "norm": NORMS[attrs["kind"]]}
    arguments |= {"eps": float(attrs["eps"])}
    arguments |= {"weight": weights.vector(params.get("weight"), unit_offset=bool(attrs["unit_offset"]))}
    arguments |= {"bias": weights.vector(params.get("bias"))}
    builder.add_by_rows("norm", NORM_ARGUMENTS, node, over=node.inputs, **_input_and_output(node), **arguments)


def _join(builder: RowStepBuilder, node: Node, name: str, scale: float, **arguments: Any) -> None:
    pairs = [(i, builder.width(i)) for i in node.inputs]
    more: dict[str, Any] = {"inputs": builder.table([number for pair in pairs for number in pair]), "count": len(pairs)}
    more |= {"output": node.outputs[0], "width": builder.width(node.outputs[0]), "scale": scale}
    builder.add_by_rows(name, JOIN_ARGUMENTS, node, **arguments, **more)


@rule("unary", "binary")
def function(builder: RowStepBuilder, node: Node) -> None:
    """A function of one or two values; a factor is a sum of one value."""
    name, plain = node.attrs["name"], node.attrs.get("beta", 0) == 0
    if name == "add" or (name == "affine" and plain):
        _join(builder, node, "add", float(node.attrs.get("alpha", 1.0)), over=node.inputs)
        return
    from volumetric.devices.cpu.rows.functions import append_binary, append_unary  # kernels that few networks need

    (append_unary if node.op == "unary" else append_binary)(builder, node)


@rule("concat")
def concat(builder: RowStepBuilder, node: Node) -> None:
    """Values side by side."""
    _join(builder, node, "concat", 1.0)


@rule("softmax")
def softmax(builder: RowStepBuilder, node: Node) -> None:
    """Softmax of rows."""
    width = builder.width(node.inputs[0])
    builder.add_by_rows("softmax", SOFTMAX_ARGUMENTS, node, over=node.inputs, **_input_and_output(node), width=width)


@rule("keep_largest")
def keep_largest(builder: RowStepBuilder, node: Node) -> None:
    """The k largest of a row."""
    width = builder.width(node.inputs[0])
    builder.add_by_rows(
        "keep_largest", LARGEST_ARGUMENTS, node, **_input_and_output(node), width=width, k=node.attrs["k"]
    )


@rule("mix")
def mix(builder: RowStepBuilder, node: Node) -> None:
    """The weighted sum of branches."""
    weights, *branches = node.inputs
    arguments: dict[str, Any] = {"weights": weights, "branches": builder.table(branches), "count": len(branches)}
    arguments |= {"weighted": int(node.attrs["weighted"])}
    arguments |= {"output": node.outputs[0], "width": builder.width(node.outputs[0])}
    builder.add_by_rows("mix", MIX_ARGUMENTS, node, **arguments)


@rule("gated")
def gated(builder: RowStepBuilder, node: Node) -> None:
    """A function of each element of a gate, times another value."""
    (gate, factor), limit = node.inputs, node.attrs["limit"]
    arguments: dict[str, Any] = {"input": gate, "factor": factor, "output": node.outputs[0], "over": node.inputs}
    arguments |= {"limit": float(limit or 0.0), "up_offset": float(node.attrs["up_offset"])}
    arguments |= {"width": builder.width(node.outputs[0])}
    constants = code_of(node.attrs["activation"], ACTIVATIONS), gating_code(limit)
    builder.add_by_rows("gated", GATE_ARGUMENTS, node, *constants, **arguments)


def gather_tail_rows(builder: RowStepBuilder) -> None:
    """Gather the requested rows, for the steps of the tail."""
    for i in builder.settings.gathered:
        arguments = {"slot": i, "width": builder.width(i)}
        builder.add("gather", GATHER_ARGUMENTS, reads=(i,), writes=(i,), tail=True, **arguments)
