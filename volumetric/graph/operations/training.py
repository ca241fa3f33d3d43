"""Training operations: losses with their gradients, optimiser steps, sums of squares and rounding to a scheme.

``loss``        prediction, target [, weights] → total [1], count [1], gradient of total. ``name`` and fields, all of
                `formula.losses`: mse; l1; huber ``delta``; bce ``logits``: any shape, target and weights alike.
                cross_entropy ``ignore_index label_smoothing``: prediction [R,C], target int32 [R] or float32 [R,C],
                weights [R].
                Terms with weight 0 are 0, even if NaN or infinite (cross_entropy only).
                count: sum of weights, or number of terms.
``update``      param, grad, slots …, scalars [5] → param, slots …; ``in_place``: outputs are the buffers of inputs
                with a key. ``name`` sgd momentum rmsprop adam adamw, and the fields of `formula.optimisers`.
                Slots are in the optimiser's order. scalars: learning rate; factor on the gradient, applied first;
                momentum: 1 in the first update (velocity = g), else 0, and adam, adamw: 1/(1 − β₁ᵗ); then
                1/√(1 − β₂ᵗ); last: 0 skips the update, even if the gradient is NaN.
``sumsq``       1 or more x → [1], the sum of all squares. Infinite or NaN if any element is.
``fake_quant``  x → the nearest values that ``scheme`` (text) can represent: ``decode(encode(x))``, bit-equal to
                `volumetric.dtypes`; groups along the last axis. Its gradient is a straight-through estimator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.dtypes import Scheme, decode, encode
from volumetric.formula.losses import TERMS
from volumetric.formula.optimisers import OPTIMISERS, form_of, step_of
from volumetric.graph.numeric.numpy_formulas import optimiser_step, terms_of
from volumetric.graph.numeric.softmax import log_softmax
from volumetric.graph.operations.operation import Attrs, axes_of, declare, float_output, require, require_floats
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def _infer_loss(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    prediction, target, *weights = inputs
    name = attrs["name"]
    if name == "bce_logits" or (name != "cross_entropy" and name not in TERMS):
        known = (each for each in (*TERMS.names(), "cross_entropy") if each != "bce_logits")
        raise SpecError(f"loss: unknown name {name!r}", hint="one of " + ", ".join(known))
    require_floats("loss", [prediction, *weights])
    terms = prediction.shape
    if name == "cross_entropy":
        terms = axes_of("loss", prediction, 2)[:1]
        require(prediction.shape[1], "loss", "the prediction needs one class or more")
    ids = target.dtype == "int32"
    expected = terms if ids else prediction.shape
    require(name == "cross_entropy" or not ids, "loss", f"{name} needs float32 targets")
    require(target.shape == expected, "loss", f"expected a target of shape {list(expected)}, got {list(target.shape)}")
    require(all(w.shape == terms for w in weights), "loss", f"weights need shape {list(terms)}")
    return [float_output("total", 1), float_output("count", 1), float_output("slope", *prediction.shape)]


def _cross_entropy(z: Array, target: Array, weights: Array, attrs: Attrs) -> tuple[Array, Array, Array]:
    """Return the values of the terms, their gradients and their weights."""
    smooth, classes = attrs["label_smoothing"], z.shape[-1]
    logp = log_softmax(z)
    if np.issubdtype(target.dtype, np.integer):
        weights = np.where(target == attrs["ignore_index"], 0, weights).astype(z.dtype)
        q = np.zeros_like(z)
        q[np.arange(len(z)), np.where(target == attrs["ignore_index"], 0, target)] = 1
    else:
        q = target
    q = (q * (1 - smooth) + smooth / classes).astype(z.dtype)
    values = -(q * np.where(q == 0, 0, logp)).sum(-1)
    slopes = np.exp(logp) * q.sum(-1, keepdims=True) - q
    none = weights == 0
    return np.where(none, 0, values), np.where(none[:, None], 0, slopes * weights[:, None]), weights


def _run_loss(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    y, target, *weighing = inputs
    if attrs["name"] == "cross_entropy":
        values, slopes, weights = _cross_entropy(
            y, target, weighing[0] if weighing else np.ones(len(y), y.dtype), attrs
        )
    else:
        values, slopes = terms_of(y, target, attrs)
        weights = weighing[0] if weighing else np.ones_like(values)
        slopes = slopes * weights
    total = (values * weights).sum(dtype=np.float64)
    return [np.asarray([v], y.dtype) for v in (total, weights.sum(dtype=np.float64))] + [slopes.astype(y.dtype)]


def _vjp_loss(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    none: list[int | None] = [None] * (len(node.inputs) - 1)
    g = work.reshape(g, (1,) * len(work.shape(node.outputs[2])))
    return [work.binary("mul", node.outputs[2], g), *none]


def _infer_update(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("update", inputs)
    if attrs["name"] not in OPTIMISERS:
        raise SpecError(f"update: unknown name {attrs['name']!r}", hint="one of " + ", ".join(OPTIMISERS.names()))
    param, grad, *slots, scalars = inputs
    own = len(step_of(form_of(attrs))[1])
    require(len(slots) == own, "update", f"{attrs['name']} needs {own} slots, got {len(slots)}")
    require(
        all(t.shape == param.shape for t in (grad, *slots)),
        "update",
        "the gradient and the slots need the shape of the parameter",
    )
    require(scalars.shape == (5,), "update", "needs 5 scalars")
    return [Tensor(name=t.name, shape=t.shape, key=t.key if attrs["in_place"] else None) for t in (param, *slots)]


def _run_update(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    w, g, *slots, scalars = inputs
    rate, factor, first, second, apply = scalars
    if apply == 0:
        return [w, *slots]
    return list(optimiser_step(w, g * factor, slots, attrs, (rate, first, second)))


def _infer_sumsq(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("sumsq", inputs)
    require(inputs, "sumsq", "needs a tensor")
    return [float_output("sum of squares", 1)]


def _run_sumsq(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    return [np.asarray([sum(np.square(x).sum() for x in inputs)], inputs[0].dtype)]


def _vjp_sumsq(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    return [work.binary("mul", work.affine(x, 2.0), work.reshape(g, (1,) * len(work.shape(x)))) for x in node.inputs]


def _infer_fake(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("fake_quant", inputs)
    Scheme.parse(attrs["scheme"])
    return [float_output("rounded", *inputs[0].shape)]


def _run_fake(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, scheme = inputs[0], Scheme.parse(attrs["scheme"])
    if scheme.dtype.is_float and scheme.dtype.bits >= 32:
        return [x]  # rounding would break float64 gradient checks
    return [decode(encode(x, scheme), x.dtype)]


declare("loss", _infer_loss, _run_loss, _vjp_loss)
declare("update", _infer_update, _run_update)
declare("sumsq", _infer_sumsq, _run_sumsq, _vjp_sumsq)
declare("fake_quant", _infer_fake, _run_fake, lambda work, node, g: [g])
