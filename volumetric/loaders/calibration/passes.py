"""One pass of a text through a network, in which every matrix is quantised as soon as its inputs are known.

The inputs of a matrix are then those that the quantised layers before it make, so that it can also make good a part of
their errors. Nothing but the activations of the text and one matrix with its ``Xᵀ X`` is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from volumetric._typing import Array, F32Array
from volumetric.dtypes import Packed, Scheme, decode
from volumetric.errors import UnsupportedError
from volumetric.loaders.calibration.feedback import can_feed_back, quantise
from volumetric.loaders.model import LoadedModel
from volumetric.loaders.quantise import convert
from volumetric.network import Params
from volumetric.progress import Meter
from volumetric.runtime.graph.families import OPS
from volumetric.runtime.graph.liveness import last_use, roots
from volumetric.runtime.graph.network import graph_of
from volumetric.runtime.graph.ops import Graph, Node
from volumetric.weights import WeightStore

CALIBRATED_TOKENS = 8192
"""Tokens of the text that are used, at most."""
_WINDOW = 512


def calibrated(
    model: LoadedModel,
    ids: Sequence[int],
    targets: Mapping[str, Scheme | None],
) -> Params:
    """Return the parameters of a model in other schemes, its matrices rounded for a text.

    Parameters
    ----------
    ids : the text as token ids; windows of 512 are read, each from an empty sequence
    targets : scheme of each parameter, None for as it is; those that `can_feed_back` allows with fewer than 8 bits are
        calibrated where a product reads them, all others rounded to nearest

    Raises
    ------
    UnsupportedError
        The text is shorter than one window of 16 tokens, or the network does not read tokens.
    """
    if model.network.input_dtype != "int32":
        raise UnsupportedError(f"{model.name} does not read tokens", hint="calibration takes a language model")
    length = min(_WINDOW, len(ids), model.context_length or _WINDOW)
    if length < 16:
        raise UnsupportedError(
            f"the text has {len(ids)} tokens", hint="give some thousand: what the model will be used for"
        )
    count = min(len(ids), CALIBRATED_TOKENS) // length
    tokens = np.array(ids[: count * length], np.int32).reshape(count, length)
    wanted = {
        key: scheme for key, scheme in targets.items() if scheme and scheme.dtype.bits < 8 and can_feed_back(scheme)
    }
    done = _Pass(graph_of(model.network, length, sequences=count), model.params, wanted).run(tokens)
    stores: dict[str, WeightStore] = {}
    for key, store in model.params.items():
        target = targets.get(key)
        if key in done:
            stores[key] = WeightStore.from_packed(done[key])
        elif target is None or target == store.scheme:
            stores[key] = store
        else:
            stores[key] = store.through(target, lambda packed, target=target: convert(packed, target))
    return Params(stores)


class _Pass:
    """A forward pass, node by node: parameters are read when a node wants them, and values dropped after use."""

    def __init__(
        self,
        graph: Graph,
        params: Params,
        wanted: Mapping[str, Scheme],
    ) -> None:
        self._graph, self._params, self._wanted = graph, params, wanted
        self._root, self._last = roots(graph), last_use(graph)
        self._keys = {i: t.key for i, t in enumerate(graph.tensors) if t.key is not None}
        self._seen: tuple[int, F32Array] | None = None
        self.done: dict[str, Packed] = {}

    def run(self, tokens: Array) -> dict[str, Packed]:
        graph = self._graph
        end = max((at for at, node in enumerate(graph.nodes) if self._wanted_key(node) is not None), default=-1)
        values: dict[int, Array] = {i: self._float(v) for i, v in graph.constants.items()}
        values[graph.inputs[0]] = tokens
        total = len({key for node in graph.nodes if (key := self._wanted_key(node)) is not None})
        with np.errstate(all="ignore"), Meter("calibrating", total, unit="matrix") as meter:
            for at, node in enumerate(graph.nodes[: end + 1]):
                key = self._wanted_key(node)
                if key is not None and key not in self.done:
                    self.done[key] = self._quantised(key, self._root[node.inputs[0]], values[node.inputs[0]])
                    factor = node.inputs[1]  # a view of the parameter, made before
                    values[factor] = decode(self.done[key]).reshape(values[factor].shape)
                    meter.step()
                for i in node.inputs:
                    if i not in values:
                        values[i] = self._parameter(i)
                made = OPS[node.op].run([values[i] for i in node.inputs], node.attrs)
                values |= zip(node.outputs, made, strict=True)
                for i in [i for i in values if self._last[i] <= at and i not in graph.constants]:
                    del values[i]
        return self.done

    def _wanted_key(self, node: Node) -> str | None:
        """Parameter that a product multiplies by, if it is to be calibrated."""
        if node.op != "gemm" or not node.attrs["trans_b"]:
            return None
        key = self._keys.get(self._root[node.inputs[1]])
        return key if key in self._wanted else None

    def _quantised(self, key: str, source: int, x: Array) -> Packed:
        if self._seen is None or self._seen[0] != source:
            rows = x.reshape(-1, x.shape[-1])
            self._seen = source, rows.T @ rows
        weight = self._params[key].values()
        self._params[key].release()
        return quantise(weight.reshape(-1, weight.shape[-1]), self._seen[1], self._wanted[key])

    def _parameter(self, i: int) -> Array:
        key = self._keys[i]
        values = decode(self.done[key]) if key in self.done else self._params[key].values()
        self._params[key].release()
        return values

    def _float(self, value: Array) -> Array:
        return value.astype(np.float32) if np.issubdtype(value.dtype, np.floating) else value
