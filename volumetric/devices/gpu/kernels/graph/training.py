"""Operations of training: losses and optimiser steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volumetric.devices.gpu.kernels.dispatch import Constant, ceil_div
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    elements,
    launch,
    result,
    scratch,
    source,
    workgroup_size,
)
from volumetric.devices.gpu.kernels.graph.row_kernels import rowwise
from volumetric.devices.gpu.kernels.graph.strided_copies import copy
from volumetric.formula.losses import TERMS, term_of
from volumetric.formula.optimisers import field, fields_of, form_of

_CHUNKS = 1024
_PER_INVOCATION = 16


def loss(request: LoweringRequest) -> LoweredNode:
    """Sum of the terms of a loss, their weight, and the gradient."""
    rows = request.attrs["name"] == "cross_entropy"
    first, count = _cross_entropy(request) if rows else _elementwise(request)
    dims = (count,)
    buffers = {"sums": scratch(0), "total": result(0), "weight": result(1)}
    second = launch("loss_total", 1, buffers, dims, workgroup=workgroup_size(request.caps))
    return LoweredNode(launches=(first, second) if count else (second,), scratch=(8 * max(count, 1),))


def _buffers(request: LoweringRequest) -> dict[str, BufferRef]:
    weights = {"weights": source(2)} if len(request.inputs) > 2 else {}
    return {"prediction": source(0), "wanted": source(1), "gradient": result(2), "sums": scratch(0), **weights}


def _elementwise(request: LoweringRequest) -> tuple[KernelLaunch, int]:
    attrs, count = request.attrs, request.size()
    size = workgroup_size(request.caps)
    chunks = min(ceil_div(count, size * _PER_INVOCATION), _CHUNKS)
    name = term_of(attrs)
    constants: dict[str, Constant] = {"WEIGHTS": len(request.inputs) > 2}
    constants |= {field.upper(): float(attrs[field]) for field in TERMS[name].fields}
    chunk = ceil_div(count, max(chunks, 1))
    loss_launch = launch(
        "loss_elements",
        chunks,
        _buffers(request),
        (count, chunk),
        constants=constants,
        preludes=(f"graph/loss/{name}",),
        workgroup=size,
    )
    return loss_launch, chunks


def _cross_entropy(request: LoweringRequest) -> tuple[KernelLaunch, int]:
    rows = request.inputs[0][0]
    constants = {
        "WEIGHTS": len(request.inputs) > 2,
        "SOFT": not request.integers[1],
        "SMOOTH": float(request.attrs["label_smoothing"]),
    }
    extra = (int(request.attrs["ignore_index"]),)
    loss_launch = rowwise(
        "loss_rows", request.inputs[0], request.caps, _buffers(request), extra=extra, constants=constants
    )
    return loss_launch, rows


def update(request: LoweringRequest) -> LoweredNode:
    """One step of an optimiser, in place: tensors that are not updated in place are copied first.

    If nothing reads the new slots, only the new parameter is written, and nothing copied.
    """
    attrs, count, caps = request.attrs, request.out_size, request.caps
    slots = len(request.inputs) - 3
    trial = not attrs["in_place"] and bool(request.read_outputs) and not any(request.read_outputs[1:])
    sources = [source(0), *(source(2 + i) for i in range(slots))]
    targets = [result(0), *sources[1:]] if trial else [result(i) for i in range(slots + 1)]
    copies = [] if trial else [copy(count, caps, x, y) for x, y in zip(sources, targets, strict=True)]
    buffers = {"param": targets[0], "grad": source(1), "scalars": source(2 + slots)}
    buffers |= {f"slot_{i}": ref for i, ref in enumerate(targets[1:])}
    buffers |= {"before": source(0)} if trial else {}
    constants = optimiser_fields(attrs)
    constants["TRIAL"] = trial
    preludes = (f"graph/{'trial' if trial else 'update'}/{form_of(attrs)}",)
    step = elements("update", count, caps, buffers, (count,), constants=constants, preludes=preludes)
    return LoweredNode(launches=(*copies, step))


def optimiser_fields(attrs: Mapping[str, Any]) -> dict[str, Constant]:
    """Return the constants of an optimiser's formula."""
    return {name.upper(): field(attrs, name) for name in fields_of(form_of(attrs))}
