"""What rounding each tensor to each of several schemes does to a model's predictions, measured on a text.

Small changes δ of what a product puts out change the predictions by a KL divergence of ``½ Σ (g · δ)²`` in the mean,
where g is the gradient of −log p for tokens drawn from the predictions themselves: the second-order term, with Fisher's
information for the Hessian. Rows of the product and places of the text are taken as independent, and so are g and the
inputs x; for a matrix W that becomes ``ΔW``, in nats a token:

    ½ Σ_r mean(g_r²) · (ΔW H ΔWᵀ)_rr,   H = mean(x xᵀ).

So one pass forward and one backward measure all tensors, on some of their rows. What feeding errors back saves is
measured in the coarsest scheme of each and taken to be the same share in the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volumetric.base import rng
from volumetric.base._typing import Array, F32Array, Shape
from volumetric.base.errors import UnsupportedError
from volumetric.base.progress import Meter
from volumetric.dtypes import Scheme, decode, encode
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.graph.ops import Graph, Node
from volumetric.loaders.calibration.feedback import Inputs, can_feed_back, is_calibrated, quantise
from volumetric.loaders.calibration.levels import fit
from volumetric.loaders.calibration.passes import windows
from volumetric.loaders.calibration.walk import Walk
from volumetric.loaders.model import LoadedModel
from volumetric.network import OUTPUT, Params
from volumetric.run.graph.network import EmitOptions, emit_plan
from volumetric.run.lower import lower
from volumetric.run.plan import Plan
from volumetric.run.state import by_name

MEASURED_TOKENS = 1024
"""Tokens that damage is measured on, at most."""
_DRAWN = 64
"""Tokens that are drawn at a time."""
_ROWS = 128
"""Rows of a matrix that are rounded to measure what it would do to all of them."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What a tensor loses.

    Attributes
    ----------
    key : parameter
    shape : its logical shape
    nats : scheme → estimated KL divergence of the predictions, a token, if this tensor alone had the scheme
    """

    key: str
    shape: Shape
    nats: Mapping[Scheme, float]


def measure_damage(
    model: LoadedModel, ids: Sequence[int], candidates: Mapping[str, Sequence[Scheme]], *, seed: int = 0
) -> list[Damage]:
    """Return what each scheme that a tensor might take would do to the predictions for a text.

    Parameters
    ----------
    ids : the text as token ids, of which `MEASURED_TOKENS` are read at most
    candidates : parameter → schemes; only parameters that multiply rows or are looked up can be measured
    seed : of the tokens that are drawn

    Raises
    ------
    UnsupportedError
        The text is too short, or the network does not read tokens or has no gradient, or computes what is not finite.
    """
    tokens = windows(model, ids, MEASURED_TOKENS)
    plan = lower(model.network)
    inputs = [*by_name(plan, tokens).values()]
    return _Measuring(_gradient_graph(plan, tokens.shape), model.params, candidates, seed).run(inputs)


def _gradient_graph(plan: Plan, shape: Shape) -> Graph:
    """Forward and backward pass. Inputs: the network's, and the slope of the loss for the output.

    Outputs: the network's, what each product with a parameter and each look-up makes, and the gradients of all these.
    """
    work, values = GraphBuilder(), {name: plan.values[i] for name, i in plan.inputs.items()}
    inputs = {name: work.input(name, (*shape, *value.shape[1:]), value.dtype) for name, value in values.items()}
    y = emit_plan(work, plan, inputs, EmitOptions(sequences=shape[0])).outputs[OUTPUT]
    viewed = {node.outputs[0]: node.inputs[0] for node in work.nodes if node.op == "reshape"}

    def stored(i: int) -> bool:
        while i in viewed:
            i = viewed[i]
        return work.tensors[i].key is not None

    measured = [
        node.outputs[0]
        for node in work.nodes
        if (node.op == "gemm" and node.attrs["trans_b"] and stored(node.inputs[1]))
        or (node.op == "gather_rows" and stored(node.inputs[0]))
    ]
    slope = work.input("slope", work.shape(y))
    gradients = differentiate(work, {y: slope}, measured)
    return work.finish([y, *gradients, *gradients.values()])


class _Errors(NamedTuple):
    """Squared errors of what a node makes, by column, on some of its columns."""

    key: str
    columns: NDArray[np.intp]
    squares: Mapping[Scheme, F32Array]


class _Measuring(Walk):
    """The pass in which errors are taken on the way forward and weighed on the way back."""

    def __init__(self, graph: Graph, params: Params, candidates: Mapping[str, Sequence[Scheme]], seed: int) -> None:
        super().__init__(graph, params)
        self._candidates, self._random = candidates, rng.generator(seed)
        self._output, *ends = graph.outputs
        half = len(ends) // 2
        self._made_by = dict(zip(ends[half:], ends[:half], strict=True))
        self._errors: dict[int, _Errors] = {}
        self._nats: dict[str, dict[Scheme, float]] = {}
        self._last_inputs: tuple[int, Inputs, F32Array] | None = None

    def run(self, inputs: Sequence[Array]) -> list[Damage]:
        """Return the damage of all tensors that have candidates and were met."""
        with Meter("measuring", len(self.graph.nodes), unit="step") as self._meter:
            self.walk(dict(zip(self.graph.inputs, inputs, strict=False)))  # the slope comes when the output is there
        if not all(np.isfinite(list(nats.values())).all() for nats in self._nats.values()):
            raise UnsupportedError(
                "predictions for this text, or their gradients, are not finite",
                hint="check the weights for NaN and overflow",
            )
        return [Damage(key, self._params[key].shape, self._nats[key]) for key in self._candidates if key in self._nats]

    def before(self, node: Node, values: dict[int, Array]) -> None:
        self._meter.step()
        product, table = self.product_key(node), self.table_key(node)
        if product is not None and self._candidates.get(product):
            self._errors[node.outputs[0]] = self._of_product(product, self.root[node.inputs[0]], values[node.inputs[0]])
        elif table is not None and self._candidates.get(table):
            self._errors[node.outputs[0]] = self._of_table(table, values[node.inputs[1]])

    def after(self, node: Node, values: dict[int, Array]) -> None:
        for i in node.outputs:
            if i == self._output:
                values[self.graph.inputs[-1]] = self._slope(values[i])
            if i in self._made_by and self._made_by[i] in self._errors:
                self._weigh(self._errors[self._made_by[i]], values[i])

    def _of_product(self, key: str, source: int, x: Array) -> _Errors:
        last_inputs = self._last_inputs
        if last_inputs is None or last_inputs[0] != source:
            rows = x.reshape(-1, x.shape[-1]).astype(np.float32, copy=False)
            squares = np.divide(rows.T @ rows, len(rows), dtype=np.float32)
            last_inputs = self._last_inputs = source, Inputs(squares), squares
        _, inputs, squares = last_inputs
        weight = self.parameter(key)
        weight = weight.reshape(-1, weight.shape[-1])
        columns = _spread(len(weight), _ROWS)
        some, errors = np.ascontiguousarray(weight[columns]), {}
        schemes, share = self._candidates[key], 1.0
        for scheme in sorted(schemes, key=lambda scheme: scheme.nbytes(some.shape)):
            if scheme == self._params[key].scheme:
                errors[scheme] = np.zeros(len(some), np.float32)
                continue
            fed_back = is_calibrated(scheme)
            errors[scheme] = _errors(_plain(some, inputs, scheme) - some, squares)
            if fed_back and share == 1.0:
                share = float(_errors(decode(quantise(some, inputs, scheme)) - some, squares).sum())
                share /= float(errors[scheme].sum()) or 1.0
            if fed_back:
                errors[scheme] *= np.float32(share)
        return _Errors(key, columns, errors)

    def _of_table(self, key: str, ids: Array) -> _Errors:
        rows, counts = np.unique(ids, return_counts=True)
        chosen = _spread(len(rows), _ROWS)
        some = np.ascontiguousarray(self.parameter(key)[rows[chosen]])
        weight = (counts[chosen] / counts[chosen].sum()).astype(np.float32)
        errors = {
            s: weight @ np.square(decode(encode(some, s)) - some)
            if s != self._params[key].scheme
            else np.zeros(some.shape[1], np.float32)
            for s in self._candidates[key]
        }
        return _Errors(key, np.arange(some.shape[1]), errors)

    def _slope(self, logits: Array) -> F32Array:
        """Gradient of −log p of tokens drawn from what the logits predict, a token for each row."""
        rows = logits.reshape(-1, logits.shape[-1])
        slope, level = np.empty(rows.shape, np.float32), self._random.random((len(rows), 1))
        for at in range(0, len(rows), _DRAWN):  # vocabularies are large
            part = slice(at, at + _DRAWN)
            chances = np.exp(rows[part] - rows[part].max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            below = (np.cumsum(chances, axis=1, dtype=np.float64) < level[part]).sum(axis=1)
            chances[np.arange(len(chances)), np.minimum(below, rows.shape[1] - 1)] -= 1
            slope[part] = chances
        return slope.reshape(logits.shape)

    def _weigh(self, errors: _Errors, gradient: Array) -> None:
        by_column = np.square(gradient.reshape(-1, gradient.shape[-1])).mean(axis=0, dtype=np.float64)
        share = by_column[errors.columns]
        # Few columns may carry most of the weight, as the head's do: the mean error of those seen stands for all.
        weight = by_column.sum() / (share.sum() or 1.0)
        nats = self._nats.setdefault(errors.key, dict.fromkeys(errors.squares, 0.0))
        for scheme, squares in errors.squares.items():
            nats[scheme] += 0.5 * weight * float(share @ squares)


def _plain(weight: F32Array, inputs: Inputs, scheme: Scheme) -> F32Array:
    """Values of a matrix whose scales suit its inputs, each number rounded for itself."""
    if can_feed_back(scheme):
        return fit(weight, inputs.importance, scheme).rounded(weight)
    return decode(encode(weight, scheme))


def _errors(off: F32Array, squares: F32Array) -> F32Array:
    """Mean squared errors of what each row of a matrix puts out."""
    return ((off @ squares) * off).sum(axis=1)


def _spread(count: int, most: int) -> NDArray[np.intp]:
    """At most `most` of `count` places, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))
