"""Damage to a model's predictions if a tensor is rounded to a scheme, measured on a text.

Small changes δ of the output of a product change the predictions by a mean KL divergence of ``½ Σ (g · δ)²``, where g
is the gradient of −log p for tokens drawn from the predictions themselves: the second-order term, with Fisher's
information for the Hessian. Rows of the product and positions of the text are assumed independent, and so are g and the
inputs x; for a change ΔW of a matrix this is, in nats per token:

    ½ Σ_r mean(g_r²) · (ΔW H ΔWᵀ)_rr,   H = mean(x xᵀ).

So one forward and one backward pass measure all tensors, on some of their rows. The saving by error feedback is
measured in the coarsest scheme of each tensor; the same ratio is assumed for the others.
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
from volumetric.base.progress import WorkMeter
from volumetric.dtypes import Scheme, decode, encode
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.graph.ops import Graph, Node
from volumetric.loaders.calibration.code_levels import fit
from volumetric.loaders.calibration.error_feedback import InputStatistics, can_feed_back, is_calibrated, quantise
from volumetric.loaders.calibration.numpy_run import NumpyGraphRun
from volumetric.loaders.calibration.quantising_run import windows
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.network import OUTPUT, Params
from volumetric.run.graph.network_graph import EmitOptions, emit_plan
from volumetric.run.lower import lower
from volumetric.run.plan import Plan
from volumetric.run.sequence_state import inputs_by_name

MEASURED_TOKENS = 1024
"""Maximum number of tokens on which damage is measured."""
_DRAWN = 64
"""Number of tokens that are drawn at a time."""
_ROWS = 128
"""Number of rows of a matrix that are rounded to estimate the damage of all rows."""


@dataclass(frozen=True, slots=True)
class TensorDamage:
    """Damage of a tensor.

    Attributes
    ----------
    key : parameter
    shape : its logical shape
    nats : scheme → estimated KL divergence of the predictions per token, if only this tensor had the scheme
    """

    key: str
    shape: Shape
    nats: Mapping[Scheme, float]


def measure_damage(
    model: LoadedModel, ids: Sequence[int], candidates: Mapping[str, Sequence[Scheme]], *, seed: int = 0
) -> list[TensorDamage]:
    """Return the damage of each candidate scheme of each tensor to the predictions for a text.

    Parameters
    ----------
    ids : the text as token ids; at most `MEASURED_TOKENS` are read
    candidates : parameter → schemes; only weight matrices and embedding tables can be measured
    seed : seed of the tokens that are drawn

    Raises
    ------
    UnsupportedError
        The text is too short, or the network does not read tokens, has no gradient or computes non-finite values.
    """
    tokens = windows(model, ids, MEASURED_TOKENS)
    plan = lower(model.network)
    inputs = [*inputs_by_name(plan, tokens).values()]
    return _DamageRun(_gradient_graph(plan, tokens.shape), model.params, candidates, seed).run(inputs)


def _gradient_graph(plan: Plan, shape: Shape) -> Graph:
    """Graph of forward and backward pass. Inputs: the network's, and the gradient of the loss for the output.

    Outputs: the network's, the result of each product with a parameter and of each lookup, and the gradients of all
    these.
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


class _ColumnErrors(NamedTuple):
    """Squared errors of the output of a node, for some of its columns."""

    key: str
    columns: NDArray[np.intp]
    squares: Mapping[Scheme, F32Array]


class _DamageRun(NumpyGraphRun):
    """The pass that measures errors in the forward part and weights them in the backward part."""

    def __init__(self, graph: Graph, params: Params, candidates: Mapping[str, Sequence[Scheme]], seed: int) -> None:
        super().__init__(graph, params)
        self._candidates, self._random = candidates, rng.generator(seed)
        self._output, *ends = graph.outputs
        half = len(ends) // 2
        self._made_by = dict(zip(ends[half:], ends[:half], strict=True))
        self._errors: dict[int, _ColumnErrors] = {}
        self._nats: dict[str, dict[Scheme, float]] = {}
        self._last_inputs: tuple[int, InputStatistics, F32Array] | None = None

    def run(self, inputs: Sequence[Array]) -> list[TensorDamage]:
        """Return the damage of all tensors that have candidates and are used by the graph."""
        with WorkMeter("measuring", len(self.graph.nodes), unit="step") as self._meter:
            self.run_nodes(dict(zip(self.graph.inputs, inputs, strict=False)))  # `after` sets the gradient input
        if not all(np.isfinite(list(nats.values())).all() for nats in self._nats.values()):
            raise UnsupportedError(
                "predictions for this text, or their gradients, are not finite",
                hint="check the weights for NaN and overflow",
            )
        return [
            TensorDamage(key, self._params[key].shape, self._nats[key]) for key in self._candidates if key in self._nats
        ]

    def before_node(self, node: Node, values: dict[int, Array]) -> None:
        self._meter.step()
        product, table = self.product_key(node), self.table_key(node)
        if product is not None and self._candidates.get(product):
            self._errors[node.outputs[0]] = self._product_errors(
                product, self.root[node.inputs[0]], values[node.inputs[0]]
            )
        elif table is not None and self._candidates.get(table):
            self._errors[node.outputs[0]] = self._table_errors(table, values[node.inputs[1]])

    def after_node(self, node: Node, values: dict[int, Array]) -> None:
        for i in node.outputs:
            if i == self._output:
                values[self.graph.inputs[-1]] = self._slope(values[i])
            if i in self._made_by and self._made_by[i] in self._errors:
                self._weigh(self._errors[self._made_by[i]], values[i])

    def _product_errors(self, key: str, source: int, x: Array) -> _ColumnErrors:
        last_inputs = self._last_inputs
        if last_inputs is None or last_inputs[0] != source:
            rows = x.reshape(-1, x.shape[-1]).astype(np.float32, copy=False)
            squares = np.divide(rows.T @ rows, len(rows), dtype=np.float32)
            last_inputs = self._last_inputs = source, InputStatistics(squares), squares
        _, inputs, squares = last_inputs
        weight = self.parameter(key)
        weight = weight.reshape(-1, weight.shape[-1])
        columns = _spread_indices(len(weight), _ROWS)
        some, errors = np.ascontiguousarray(weight[columns]), {}
        schemes, share = self._candidates[key], 1.0
        for scheme in sorted(schemes, key=lambda scheme: scheme.nbytes(some.shape)):
            if scheme == self._params[key].scheme:
                errors[scheme] = np.zeros(len(some), np.float32)
                continue
            fed_back = is_calibrated(scheme)
            errors[scheme] = _errors(_round_plain(some, inputs, scheme) - some, squares)
            if fed_back and share == 1.0:
                share = float(_errors(decode(quantise(some, inputs, scheme)) - some, squares).sum())
                share /= float(errors[scheme].sum()) or 1.0
            if fed_back:
                errors[scheme] *= np.float32(share)
        return _ColumnErrors(key, columns, errors)

    def _table_errors(self, key: str, ids: Array) -> _ColumnErrors:
        rows, counts = np.unique(ids, return_counts=True)
        chosen = _spread_indices(len(rows), _ROWS)
        some = np.ascontiguousarray(self.parameter(key)[rows[chosen]])
        weight = (counts[chosen] / counts[chosen].sum()).astype(np.float32)
        errors = {
            s: weight @ np.square(decode(encode(some, s)) - some)
            if s != self._params[key].scheme
            else np.zeros(some.shape[1], np.float32)
            for s in self._candidates[key]
        }
        return _ColumnErrors(key, np.arange(some.shape[1]), errors)

    def _slope(self, logits: Array) -> F32Array:
        """Gradient of −log p of tokens drawn from the predictions, one token for each row."""
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

    def _weigh(self, errors: _ColumnErrors, gradient: Array) -> None:
        by_column = np.square(gradient.reshape(-1, gradient.shape[-1])).mean(axis=0, dtype=np.float64)
        share = by_column[errors.columns]
        # Few columns may have most of the weight, as in the head: the mean error of measured columns is used for all.
        weight = by_column.sum() / (share.sum() or 1.0)
        nats = self._nats.setdefault(errors.key, dict.fromkeys(errors.squares, 0.0))
        for scheme, squares in errors.squares.items():
            nats[scheme] += 0.5 * weight * float(share @ squares)


def _round_plain(weight: F32Array, inputs: InputStatistics, scheme: Scheme) -> F32Array:
    """Values of a matrix with scales fitted to its inputs, each number rounded to nearest."""
    if can_feed_back(scheme):
        return fit(weight, inputs.importance, scheme).round_nearest(weight)
    return decode(encode(weight, scheme))


def _errors(off: F32Array, squares: F32Array) -> F32Array:
    """Mean squared errors of the output of each row of a matrix."""
    return ((off @ squares) * off).sum(axis=1)


def _spread_indices(count: int, most: int) -> NDArray[np.intp]:
    """At most `most` of `count` indices, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))
