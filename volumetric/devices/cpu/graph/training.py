"""Steps of training: losses, optimisers, sums of squares, rounding to a scheme."""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.graph.elements import reduction
from volumetric.devices.cpu.graph.graph_rules import move_nanoseconds, rule
from volumetric.devices.cpu.kernels.formula_kernels import code_of
from volumetric.devices.cpu.kernels.graph.losses import CHUNK as LOSS_CHUNK
from volumetric.devices.cpu.kernels.graph.losses import (
    CLASS_LOSS_ARGUMENTS,
    ELEMENT_LOSS_ARGUMENTS,
    PAIR_SUM_ARGUMENTS,
    TERMS,
)
from volumetric.devices.cpu.kernels.graph.reduce import CHUNK, SQUARES_ARGUMENTS
from volumetric.devices.cpu.kernels.graph.rounding import ROUND_ARGUMENTS
from volumetric.devices.cpu.kernels.graph.rounding import RULES as ROUNDING
from volumetric.devices.cpu.kernels.graph.updates import FORMS, UPDATE_ARGUMENTS
from volumetric.devices.cpu.step_builder import OperationStep, StepBuilder, TensorAddress
from volumetric.dtypes import Scheme, decode, encode
from volumetric.formula.losses import TERMS as LOSSES
from volumetric.formula.losses import term_of
from volumetric.formula.optimisers import FIELDS, field, fields_of, form_of
from volumetric.graph.ops import Node


@rule("loss")
def loss(builder: StepBuilder, node: Node) -> None:
    """Terms in partial sums, then their sum."""
    prediction, target, *weights = node.inputs
    total, count, slope = node.outputs
    attrs, size = node.attrs, builder.tensor(prediction).size
    classes = attrs["name"] == "cross_entropy"
    pairs = builder.shape(prediction)[0] if classes else -(-size // LOSS_CHUNK)
    partial = builder.temporary(16 * pairs)
    common = {
        "prediction": TensorAddress(prediction),
        "target": TensorAddress(target),
        "weights": TensorAddress(weights[0]) if weights else 0,
        "slope": TensorAddress(slope),
        "partial": TensorAddress(partial),
    }
    reads, writes, work = node.inputs, (slope, partial), move_nanoseconds(16 * size) + size
    if classes:
        soft = int(builder.tensor(target).dtype == "float32")
        ignored, smoothing = attrs["ignore_index"], float(attrs["label_smoothing"])
        rows, width = builder.shape(prediction)
        arguments = {"rows": rows, "classes": width, "smoothing": smoothing, "ignored": ignored}
        builder.add(
            "class_loss", CLASS_LOSS_ARGUMENTS, soft, reads=reads, writes=writes, work=work, **common, **arguments
        )
    else:
        name = term_of(attrs)
        numbers = {"field0": 0.0, "field1": 0.0, "count": size}
        numbers |= {f"field{i}": float(attrs[field]) for i, field in enumerate(LOSSES[name].fields)}
        code = code_of(name, TERMS)
        builder.add(
            "element_loss", ELEMENT_LOSS_ARGUMENTS, code, reads=reads, writes=writes, work=work, **common, **numbers
        )
    arguments: dict[str, Any] = {"writes": {"total": total, "count": count}, "pairs": pairs}
    builder.add("pair_sum", PAIR_SUM_ARGUMENTS, reads={"partial": partial}, work=10 + pairs, **arguments)


def _chunks(builder: StepBuilder, x: int) -> int:
    return -(-builder.tensor(x).size // CHUNK)


def _sum_up(builder: StepBuilder, partial: int, count: int, y: int) -> None:
    """Add the partial sums of chunks."""
    reduction(builder, partial, y, (1, 1, 1, count, 1))


@rule("sumsq")
def sumsq(builder: StepBuilder, node: Node) -> None:
    """Sums of squares of chunks, then their sum."""
    chunks = [_chunks(builder, x) for x in node.inputs]
    partial = builder.temporary(4 * max(1, sum(chunks)))
    for at, x in enumerate(node.inputs):
        arguments: dict[str, Any] = {"writes": {"partial": TensorAddress(partial, 4 * sum(chunks[:at]))}}
        arguments |= {"count": builder.tensor(x).size, "chunks": chunks[at]}
        builder.add("squares", SQUARES_ARGUMENTS, reads={"x": x}, work=move_nanoseconds(builder.sizes[x]), **arguments)
    _sum_up(builder, partial, sum(chunks), node.outputs[0])


@rule("update", "update_squares")
def update(builder: StepBuilder, node: Node) -> None:
    """One optimiser step of one parameter, or the sum of squares of its result."""
    param, grad, *slots, scalars = node.inputs
    trial = node.op == "update_squares"
    partial = builder.temporary(4 * max(1, _chunks(builder, param))) if trial else 0
    written = (partial,) if trial else node.outputs
    form = form_of(node.attrs)
    count = builder.tensor(param).size
    places = {f"slot{i}": TensorAddress(slots[i]) if i < len(slots) else 0 for i in range(3)}
    places |= {f"new{i}": TensorAddress(written[1 + i]) if i < len(slots) and not trial else 0 for i in range(3)}
    arguments: dict[str, Any] = {"reads": node.inputs, "writes": written}
    arguments |= {"work": move_nanoseconds(4 * count * ((2 + len(slots)) if trial else (3 + 2 * len(slots))))}
    arguments |= {"shared": () if trial else (param, grad, *slots, *node.outputs)}
    arguments |= {"flat": 0 if trial else count, "weight": TensorAddress(param), "grad": TensorAddress(grad)}
    arguments |= {"scalars": TensorAddress(scalars), "new_weight": TensorAddress(written[0]), "count": count}
    values = [field(node.attrs, name) for name in fields_of(form)]
    arguments |= {f"field{i}": values[i] if i < len(values) else 0.0 for i in range(FIELDS)}
    builder.add("update", UPDATE_ARGUMENTS, code_of(form, FORMS), len(slots), int(trial), **places, **arguments)
    if trial:
        _sum_up(builder, partial, _chunks(builder, param), node.outputs[0])


def rounding_rule(scheme: Scheme) -> tuple[str, float] | None:
    """Return the kernel's rule for a scheme and its levels; None if only the codec implements it."""
    dtype = scheme.dtype
    if scheme.scale_dtype is None:
        plain = {"float16": "half", "bfloat16": "bfloat"}
        return (plain[dtype.name], 0.0) if dtype.name in plain else None
    if scheme.scale_dtype.name != "float16" or dtype.bits > 8:
        return None
    if dtype.kind == "uint":
        return "range", float(2**dtype.bits - 1)
    if dtype.kind == "int":
        return ("peak", 0.0) if dtype.bits == 8 else ("signed_peak", float(2 ** (dtype.bits - 1)))
    return None


@rule("fake_quant")
def fake_quant(builder: StepBuilder, node: Node) -> None:
    """Round to the values of a scheme."""
    [x], [y] = node.inputs, node.outputs
    scheme, count = Scheme.parse(node.attrs["scheme"]), builder.tensor(x).size
    native = rounding_rule(scheme)
    if native is not None:
        width = builder.shape(x)[-1]
        arguments: dict[str, Any] = {"reads": {"x": x}, "writes": {"y": y}, "rows": count // width, "width": width}
        arguments |= {"size": scheme.group or (width if scheme.has_scale else 64), "levels": native[1]}
        builder.add(
            "round_to_scheme",
            ROUND_ARGUMENTS,
            ROUNDING.index(native[0]),
            work=move_nanoseconds(8 * count) + 5 * count,
            **arguments,
        )
        return

    def by_codec(values: Any) -> None:
        values.view(y)[...] = decode(encode(values.view(x), scheme), np.float32)

    builder.steps.append(OperationStep(name="codec", reads=(x,), writes=(y,), work=20.0 * count, host=by_codec))
