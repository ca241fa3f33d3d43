"""Steps of operations on rows, and of rotary embedding."""

from __future__ import annotations

from typing import Any

from volumetric.devices.cpu.graph.graph_rules import move_nanoseconds, rule
from volumetric.devices.cpu.kernels.graph.lookups import GATHER_ARGUMENTS, SCATTER_ARGUMENTS
from volumetric.devices.cpu.kernels.graph.norms import NORM_ARGUMENTS, NORM_GRAD_ARGUMENTS, PARAM_GRAD_ARGUMENTS
from volumetric.devices.cpu.kernels.graph.recurrent_steps import ROPE_ARGUMENTS
from volumetric.devices.cpu.kernels.graph.softmaxes import (
    ENTMAX_ARGUMENTS,
    ENTMAX_GRAD_ARGUMENTS,
    GRAD_ARGUMENTS,
    KEEP_ARGUMENTS,
    ROW_ARGUMENTS,
)
from volumetric.devices.cpu.kernels.graph.weighted_sums import WEIGH_ARGUMENTS
from volumetric.devices.cpu.step_builder import StepBuilder, TensorAddress
from volumetric.graph.ops import Node


@rule("gather_rows")
def gather_rows(builder: StepBuilder, node: Node) -> None:
    """Rows of a table."""
    (table, ids), [y] = node.inputs, node.outputs
    count, width = builder.shape(y)
    arguments: dict[str, Any] = {"reads": {"table": table, "ids": ids}, "count": count, "width": width}
    arguments |= {"rows": builder.shape(table)[0]}
    builder.add("gather_rows", GATHER_ARGUMENTS, writes={"y": y}, work=move_nanoseconds(8 * count * width), **arguments)


@rule("scatter_rows", "scatter_add")
def scatter_rows(builder: StepBuilder, node: Node) -> None:
    """Sums of rows with the same id; ``scatter_add`` adds them in place, see `merged_predicates`."""
    (*total, g, ids), [y] = node.inputs, node.outputs
    rows, width = builder.shape(y)
    count = builder.shape(g)[0]
    places: dict[str, Any] = {name: TensorAddress(i) for name, i in (("g", g), ("ids", ids), ("y", y))}
    work = move_nanoseconds(4 * ((0 if total else rows) + 3 * count) * width)
    arguments = {"reads": node.inputs, "writes": (y,), "work": work}
    places |= {"count": count, "width": width, "rows": rows, "fresh": int(not total)}
    builder.add("scatter_rows", SCATTER_ARGUMENTS, **arguments, **places)


@rule("weigh_rows")
def weigh_rows(builder: StepBuilder, node: Node) -> None:
    """Weighted sums of rows of two tables."""
    names = ("near", "far", "ids", "weights")
    (count, terms), width = builder.shape(node.inputs[2]), builder.shape(node.outputs[0])[1]
    near, far = (builder.shape(i)[0] for i in node.inputs[:2])
    builder.add(
        "weigh_rows",
        WEIGH_ARGUMENTS,
        reads=dict(zip(names, node.inputs, strict=True)),
        writes={"y": node.outputs[0]},
        work=move_nanoseconds(4 * count * width * (terms + 1)),
        count=count,
        terms=terms,
        width=width,
        split=near,
        rows=near + far,
    )


@rule("softmax", "entmax", "keep_largest")
def softmax_rows(builder: StepBuilder, node: Node) -> None:
    """Softmax and its relatives."""
    [x], [y] = node.inputs, node.outputs
    rows, width = builder.shape(x)
    common: dict[str, Any] = {"reads": {"x": x}, "writes": {"y": y}, "rows": rows, "width": width}
    work, size = move_nanoseconds(12 * rows * width), rows * width
    if node.op == "softmax":
        builder.add("softmax", ROW_ARGUMENTS, work=work + 0.4 * size, **common)
    elif node.op == "keep_largest":
        builder.add("keep_largest", KEEP_ARGUMENTS, work=work + size * node.attrs["k"], **common, k=node.attrs["k"])
    elif node.attrs["alpha"] == 2:
        builder.add("sparsemax", ROW_ARGUMENTS, work=work + 10 * size, **common)
    else:
        scale = node.attrs["alpha"] - 1
        builder.add("entmax", ENTMAX_ARGUMENTS, work=work + 30 * size, **common, scale=float(scale), inverse=1 / scale)


@rule("softmax_grad", "entmax_grad")
def softmax_rows_grad(builder: StepBuilder, node: Node) -> None:
    """Their gradients."""
    (y, g), [gx] = node.inputs, node.outputs
    rows, width = builder.shape(y)
    common: dict[str, Any] = {"reads": {"y": y, "g": g}, "writes": {"gx": gx}, "rows": rows, "width": width}
    work = move_nanoseconds(16 * rows * width)
    if node.op == "softmax_grad":
        builder.add("softmax_grad", GRAD_ARGUMENTS, work=work, **common)
    else:
        exponent = float(2 - node.attrs["alpha"])
        builder.add("entmax_grad", ENTMAX_GRAD_ARGUMENTS, work=work + rows * width, **common, exponent=exponent)


@rule("norm")
def norm(builder: StepBuilder, node: Node) -> None:
    """Norm of rows."""
    x, *vectors = node.inputs
    y, stats = node.outputs
    gain, bias, *_ = (*vectors, None, None)
    rows, width = builder.shape(x)
    arguments: dict[str, Any] = {"reads": {"x": x, "gain": gain, "bias": bias}}
    arguments |= {"writes": {"y": y, "stats": stats}, "work": move_nanoseconds(12 * rows * width) + 20 * rows}
    arguments |= {"rows": rows, "width": width, "eps": float(node.attrs["eps"])}
    arguments |= {"offset": float(bool(node.attrs["unit_offset"]))}
    builder.add("norm", NORM_ARGUMENTS, int(node.attrs["kind"] == "layer"), **arguments)


@rule("norm_grad")
def norm_grad(builder: StepBuilder, node: Node) -> None:
    """Gradient of the rows."""
    g, x, stats, *vectors = node.inputs
    rows, width = builder.shape(x)
    arguments: dict[str, Any] = {"reads": {"g": g, "x": x, "stats": stats, "gain": vectors[0] if vectors else None}}
    arguments |= {"writes": {"gx": node.outputs[0]}, "work": move_nanoseconds(24 * rows * width) + 20 * rows}
    arguments |= {"rows": rows, "width": width, "offset": float(bool(node.attrs["unit_offset"]))}
    builder.add("norm_grad", NORM_GRAD_ARGUMENTS, int(node.attrs["kind"] == "layer"), **arguments)


@rule("norm_param_grad")
def norm_param_grad(builder: StepBuilder, node: Node) -> None:
    """Gradients of gain and bias."""
    g, x, stats = node.inputs
    rows, width = builder.shape(x)
    gain, *bias = node.outputs
    arguments: dict[str, Any] = {"reads": {"g": g, "x": x, "stats": stats}, "rows": rows, "width": width}
    arguments |= {"writes": {"ggain": gain, "gbias": bias[0] if node.attrs["bias"] else None}}
    builder.add("norm_param_grad", PARAM_GRAD_ARGUMENTS, work=move_nanoseconds(12 * rows * width), **arguments)


@rule("rope")
def rope(builder: StepBuilder, node: Node) -> None:
    """Rotate pairs of elements."""
    (x, cos, sin), [y] = node.inputs, node.outputs
    batch, length, heads, width = builder.shape(x)
    arguments: dict[str, Any] = {"reads": {"x": x, "cos": cos, "sin": sin}, "rows": batch * length * heads}
    arguments |= {"length": length, "heads": heads, "width": width, "half": builder.shape(cos)[1]}
    arguments |= {"sign": -1.0 if node.attrs["back"] else 1.0}
    builder.add("rope", ROPE_ARGUMENTS, writes={"y": y}, work=move_nanoseconds(8 * builder.tensor(x).size), **arguments)
