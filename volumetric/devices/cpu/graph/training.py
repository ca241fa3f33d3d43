"""Steps of training: losses, optimisers, sums of squares, rounding to a scheme."""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.graph.elements import reduction
from volumetric.devices.cpu.graph.steps import moved, rule
from volumetric.devices.cpu.kernels.formulas import code_of
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
from volumetric.devices.cpu.steps import Address, Draft, Step
from volumetric.dtypes import Scheme, decode, encode
from volumetric.formula.losses import TERMS as LOSSES
from volumetric.formula.losses import term_of
from volumetric.formula.optimisers import FIELDS, field, fields_of, form_of
from volumetric.graph.ops import Node


@rule("loss")
def loss(draft: Draft, node: Node) -> None:
    """Terms in partial sums, then their sum."""
    prediction, target, *weights = node.inputs
    total, count, slope = node.outputs
    attrs, size = node.attrs, draft.tensor(prediction).size
    classes = attrs["name"] == "cross_entropy"
    pairs = draft.shape(prediction)[0] if classes else -(-size // LOSS_CHUNK)
    partial = draft.temporary(16 * pairs)
    common = {
        "prediction": Address(prediction),
        "target": Address(target),
        "weights": Address(weights[0]) if weights else 0,
        "slope": Address(slope),
        "partial": Address(partial),
    }
    reads, writes, work = node.inputs, (slope, partial), moved(16 * size) + size
    if classes:
        soft = int(draft.tensor(target).dtype == "float32")
        ignored, smoothing = attrs["ignore_index"], float(attrs["label_smoothing"])
        rows, width = draft.shape(prediction)
        arguments = {"rows": rows, "classes": width, "smoothing": smoothing, "ignored": ignored}
        draft.add(
            "class_loss", CLASS_LOSS_ARGUMENTS, soft, reads=reads, writes=writes, work=work, **common, **arguments
        )
    else:
        name = term_of(attrs)
        numbers = {"field0": 0.0, "field1": 0.0, "count": size}
        numbers |= {f"field{i}": float(attrs[field]) for i, field in enumerate(LOSSES[name].fields)}
        code = code_of(name, TERMS)
        draft.add(
            "element_loss", ELEMENT_LOSS_ARGUMENTS, code, reads=reads, writes=writes, work=work, **common, **numbers
        )
    arguments: dict[str, Any] = {"writes": {"total": total, "count": count}, "pairs": pairs}
    draft.add("pair_sum", PAIR_SUM_ARGUMENTS, reads={"partial": partial}, work=10 + pairs, **arguments)


def _chunks(draft: Draft, x: int) -> int:
    return -(-draft.tensor(x).size // CHUNK)


def _sum_up(draft: Draft, partial: int, count: int, y: int) -> None:
    """Add the partial sums of chunks."""
    reduction(draft, partial, y, (1, 1, 1, count, 1))


@rule("sumsq")
def sumsq(draft: Draft, node: Node) -> None:
    """Sums of squares of chunks, then their sum."""
    chunks = [_chunks(draft, x) for x in node.inputs]
    partial = draft.temporary(4 * max(1, sum(chunks)))
    for at, x in enumerate(node.inputs):
        arguments: dict[str, Any] = {"writes": {"partial": Address(partial, 4 * sum(chunks[:at]))}}
        arguments |= {"count": draft.tensor(x).size, "chunks": chunks[at]}
        draft.add("squares", SQUARES_ARGUMENTS, reads={"x": x}, work=moved(draft.sizes[x]), **arguments)
    _sum_up(draft, partial, sum(chunks), node.outputs[0])


@rule("update", "update_squares")
def update(draft: Draft, node: Node) -> None:
    """One optimiser step of one parameter, or the sum of squares of its result."""
    param, grad, *slots, scalars = node.inputs
    trial = node.op == "update_squares"
    partial = draft.temporary(4 * max(1, _chunks(draft, param))) if trial else 0
    written = (partial,) if trial else node.outputs
    form = form_of(node.attrs)
    count = draft.tensor(param).size
    places = {f"slot{i}": Address(slots[i]) if i < len(slots) else 0 for i in range(3)}
    places |= {f"new{i}": Address(written[1 + i]) if i < len(slots) and not trial else 0 for i in range(3)}
    arguments: dict[str, Any] = {"reads": node.inputs, "writes": written}
    arguments |= {"work": moved(4 * count * ((2 + len(slots)) if trial else (3 + 2 * len(slots))))}
    arguments |= {"shared": () if trial else (param, grad, *slots, *node.outputs)}
    arguments |= {"flat": 0 if trial else count, "weight": Address(param), "grad": Address(grad)}
    arguments |= {"scalars": Address(scalars), "new_weight": Address(written[0]), "count": count}
    values = [field(node.attrs, name) for name in fields_of(form)]
    arguments |= {f"field{i}": values[i] if i < len(values) else 0.0 for i in range(FIELDS)}
    draft.add("update", UPDATE_ARGUMENTS, code_of(form, FORMS), len(slots), int(trial), **places, **arguments)
    if trial:
        _sum_up(draft, partial, _chunks(draft, param), node.outputs[0])


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
def fake_quant(draft: Draft, node: Node) -> None:
    """Round to the values of a scheme."""
    [x], [y] = node.inputs, node.outputs
    scheme, count = Scheme.parse(node.attrs["scheme"]), draft.tensor(x).size
    native = rounding_rule(scheme)
    if native is not None:
        width = draft.shape(x)[-1]
        arguments: dict[str, Any] = {"reads": {"x": x}, "writes": {"y": y}, "rows": count // width, "width": width}
        arguments |= {"size": scheme.group or (width if scheme.has_scale else 64), "levels": native[1]}
        draft.add("rounded", ROUND_ARGUMENTS, ROUNDING.index(native[0]), work=moved(8 * count) + 5 * count, **arguments)
        return

    def by_codec(values: Any) -> None:
        values.view(y)[...] = decode(encode(values.view(x), scheme), np.float32)

    draft.steps.append(Step(name="codec", reads=(x,), writes=(y,), work=20.0 * count, host=by_codec))
