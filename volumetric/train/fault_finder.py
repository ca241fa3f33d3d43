"""Search for the layer that produced a non-finite number: the host repeats a pass or an update step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph import Graph, GraphDevice, NumpyGraphs
from volumetric.graph.graph_device import TensorStore
from volumetric.graph.ops import ProductType
from volumetric.graph.rounded_products import with_products
from volumetric.run.graph.nonfinite_graphs import LabelledGraph, pass_values, update_values
from volumetric.run.graph.training_graphs import next_key, sum_key
from volumetric.run.graph.weight_reader import EmitWeights
from volumetric.run.graph.weight_updates import UpdateRule
from volumetric.run.plan import Plan
from volumetric.train.prepared_batch import PreparedBatch


class FaultFinder:
    """Runs passes on a copy of a learner's arrays.

    Attributes
    ----------
    outputs : outputs of the network in the last pass

    Parameters
    ----------
    device : of the learner; NumPy repeats its computation, in float64 if the device is NumPy in float64
    store : arrays of the learner
    weights : emits the weights of its passes
    products : see `Graph.products`
    """

    def __init__(
        self, device: GraphDevice, store: TensorStore, weights: EmitWeights, products: ProductType = "float32"
    ) -> None:
        self._host = device if isinstance(device, NumpyGraphs) else NumpyGraphs(np.float32)
        self._theirs, self._weights = store, weights
        self._products: ProductType = products
        self._own = self._host.store()
        self.outputs: dict[str, Array] = {}

    def in_pass(self, ready: PreparedBatch[Any]) -> str | None:
        """Name the first non-finite value in an inference pass."""
        return self._run_pass(ready, [], None)[0]

    def in_update(
        self,
        plan: Plan,
        passes: Sequence[tuple[PreparedBatch[Any], Sequence[Array]]],
        rule: UpdateRule,
        knobs: Array,
        *,
        judged: bool,
    ) -> str | None:
        """Name the first non-finite value in an update.

        Parameters
        ----------
        passes : batches of the update, each with the key of its pass if it draws random numbers
        judged : whether the loss is finite; then gradients and new weights are checked, too
        """
        sums: dict[str, Array] = {}
        for ready, noise in passes:
            odd, shown, values = self._run_pass(ready, noise, rule)
            if odd is not None:
                return odd
            left = values[len(shown.labels) :]
            for key, gradient in zip(shown.gradients, left, strict=False):
                sums[key] = sums[key] + gradient if key in sums else gradient
            for key, value in zip(shown.buffers, left[len(shown.gradients) :], strict=True):
                self._own.write(key, value)
                self._own.write(next_key(key), value)
        if not judged:
            return None
        for key, value in sums.items():
            self._own.write(sum_key(key), value)
        shown = update_values(plan, rule)
        return _first(shown, self._run(shown.graph, [knobs]))

    def _run_pass(
        self, ready: PreparedBatch[Any], noise: Sequence[Array], rule: UpdateRule | None
    ) -> tuple[str | None, LabelledGraph, list[Array]]:
        shown = pass_values(ready.of, self._weights, rule)
        values = self._run(shown.graph, [*noise, *ready.arrays])
        self.outputs = {name: values[at] for name, at in shown.outputs.items()}
        return _first(shown, values), shown, values

    def _run(self, graph: Graph, arrays: Sequence[Array]) -> list[Array]:
        known = set(self._own.keys())
        for key in graph.tensors_by_key:
            if key not in known:
                self._own.write(key, self._theirs.get(key))
        with np.errstate(all="ignore"):
            return self._host.compile(with_products(graph, self._products), self._own).run(arrays)


def _first(shown: LabelledGraph, values: Sequence[Array]) -> str | None:
    odd: Mapping[str, Array] = dict(zip(shown.labels, values, strict=False))
    return next((label for label, value in odd.items() if not np.isfinite(value).all()), None)
