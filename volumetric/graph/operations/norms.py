"""Normalisation of rows and its gradients.

``norm``          x [R,W] [, gain [W] [, bias [W]]] → y, stats [R,3] = (mean; rstd = 1/√(variance + eps); the mean of
                  x − mean, which is the rounding error of the mean; both means are 0 for rms).
                  ``kind`` rms|layer, ``eps``, ``unit_offset``: the gain is 1 + gain.
                  ``y = (x − mean) rstd gain + bias`` with both parts of the mean; the variance is about that mean,
                  biased; for rms it is the mean of squares. If it overflows, rstd is 0.
``norm_grad``     g, x, stats [, gain] → gx [R,W]. ``kind``, ``unit_offset``. With ``n = (x − mean) rstd`` and
                  ``i = g gain``: ``rstd (i − n mean(i n))``, for layer also minus ``rstd mean(i)``.
``norm_param_grad`` g, x, stats → ggain [W] = ``Σ_R g n`` [, gbias [W] = ``Σ_R g``]. ``bias``: whether gbias is present.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph.operations.operation import Attrs, axes_of, declare, float_output, require, require_floats
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def _check(op: str, x: Tensor, vectors: Sequence[Tensor], attrs: Attrs) -> tuple[int, ...]:
    rows, width = axes_of(op, x, 2)
    require(width, op, "rows are empty")
    require(all(v.shape == (width,) for v in vectors), op, f"gain and bias need {width} elements")
    if attrs["kind"] not in ("rms", "layer"):
        raise SpecError(f"{op}: unknown kind {attrs['kind']!r}", hint="one of rms, layer")
    return rows, width


def _gain(vectors: Sequence[Array], attrs: Attrs) -> Array | float:
    if not vectors:
        return 1.0
    return vectors[0] + 1 if attrs["unit_offset"] else vectors[0]


def _normal(x: Array, stats: Array) -> Array:
    return (x - stats[:, :1] - stats[:, 2:]) * stats[:, 1:2]


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("norm", inputs)
    rows, width = _check("norm", inputs[0], inputs[1:], attrs)
    return [float_output("normal", rows, width), float_output("stats", rows, 3)]


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, *vectors = inputs
    mean = shift = np.zeros_like(x[:, :1])
    if attrs["kind"] == "layer":
        mean = x.mean(-1, keepdims=True)
        shift = (x - mean).mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(np.square(x - mean - shift).mean(-1, keepdims=True) + x.dtype.type(attrs["eps"]))
    stats = np.concatenate([mean, rstd, shift], -1)
    y = _normal(x, stats) * _gain(vectors, attrs)
    return [y + vectors[1] if len(vectors) > 1 else y, stats]


def _vjp(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    x, *vectors = node.inputs
    attrs = {name: node.attrs[name] for name in ("kind", "unit_offset")}
    gx = work.emit("norm_grad", (g, x, node.outputs[1], *vectors[:1]), **attrs)
    bias = len(vectors) > 1
    vector_gradients = work.emit("norm_param_grad", (g, x, node.outputs[1]), bias=bias) if vectors else ()
    return [*gx, *vector_gradients]


def _infer_grad(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("norm_grad", inputs)
    g, x, stats, *vectors = inputs
    shape = _check("norm_grad", x, vectors, attrs)
    require(g.shape == shape and stats.shape == (shape[0], 3), "norm_grad", "the shapes of g, x and stats do not match")
    return [float_output("grad", *shape)]


def _run_grad(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    g, x, stats, *vectors = inputs
    normal, inner = _normal(x, stats), g * _gain(vectors, attrs)
    gx = inner - normal * (inner * normal).mean(-1, keepdims=True)
    if attrs["kind"] == "layer":
        gx = gx - inner.mean(-1, keepdims=True)
    return [gx * stats[:, 1:2]]


def _infer_param(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("norm_param_grad", inputs)
    g, x, stats = inputs
    rows, width = axes_of("norm_param_grad", x, 2)
    same = g.shape == x.shape and stats.shape == (rows, 3)
    require(same, "norm_param_grad", "the shapes of g, x and stats do not match")
    return [float_output("gain grad", width), *([float_output("bias grad", width)] if attrs["bias"] else [])]


def _run_param(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    g, x, stats = inputs
    return [(g * _normal(x, stats)).sum(0), *([g.sum(0)] if attrs["bias"] else [])]


declare("norm", _infer, _run, _vjp)
declare("norm_grad", _infer_grad, _run_grad)
declare("norm_param_grad", _infer_param, _run_param)
