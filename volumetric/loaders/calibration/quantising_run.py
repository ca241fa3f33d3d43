"""One forward pass of a text that quantises every matrix as soon as its inputs are known.

The inputs of a matrix then come from the quantised layers before it, so it can also compensate a part of their errors.
Only the activations of the text and one matrix with its ``Xᵀ X`` are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.base.errors import UnsupportedError
from volumetric.base.progress import WorkMeter
from volumetric.dtypes import Packed, Scheme, decode
from volumetric.graph.ops import Graph, Node
from volumetric.loaders.calibration.error_feedback import InputStatistics, is_calibrated, quantise
from volumetric.loaders.calibration.numpy_run import NumpyGraphRun
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.target_schemes import convert_params
from volumetric.network import Params
from volumetric.network.weight_store import WeightStore
from volumetric.run.graph.network_graph import graph_of
from volumetric.run.lower import lower
from volumetric.run.sequence_state import inputs_by_name

CALIBRATED_TOKENS = 8192
"""Maximum number of tokens of the text that are used."""
_WINDOW = 512


def calibrate_params(
    model: LoadedModel,
    ids: Sequence[int],
    targets: Mapping[str, Scheme | None],
) -> Params:
    """Return the parameters of a model in other schemes, with matrices calibrated on a text.

    Parameters
    ----------
    ids : the text as token ids; it is split into windows of 512 tokens, each a new sequence
    targets : scheme of each parameter, None to keep it; weight matrices are calibrated if `is_calibrated` is true for
        the scheme, all others are rounded to nearest

    Raises
    ------
    UnsupportedError
        The text is shorter than one window of 16 tokens, or the network does not read tokens.
    """
    tokens = windows(model, ids)
    count, length = tokens.shape
    inputs = inputs_by_name(lower(model.network), tokens)
    schemes = {
        key: scheme
        for key, scheme in targets.items()
        if scheme and scheme != model.params[key].scheme and is_calibrated(scheme)
    }
    done = _QuantisingRun(graph_of(model.network, length, sequences=count), model.params, schemes).run(
        [*inputs.values()]
    )
    rest = convert_params(model.params, {key: None if key in done else target for key, target in targets.items()})
    return Params({key: WeightStore.from_packed(done[key]) if key in done else rest[key] for key in rest})


def windows(model: LoadedModel, ids: Sequence[int], most: int = CALIBRATED_TOKENS) -> NDArray[np.int32]:
    """Return a text in windows, ``[count, length]``, of at most `most` tokens; raises as `calibrate_params`."""
    more = [name for name, port in model.network.inputs.items() if port.default is None]
    if model.network.input_dtype != "int32" or more:
        raise UnsupportedError(f"{model.name} has inputs other than tokens", hint="calibration needs a language model")
    length = min(_WINDOW, len(ids), model.context_length or _WINDOW)
    if length < 16:
        raise UnsupportedError(f"the text has {len(ids)} tokens", hint="give some thousand tokens of typical text")
    count = max(min(len(ids), most) // length, 1)
    return np.array(ids[: count * length], np.int32).reshape(count, length)


class _QuantisingRun(NumpyGraphRun):
    """A forward pass that replaces a parameter by the quantised matrix when a product reads it."""

    def __init__(self, graph: Graph, params: Params, schemes: Mapping[str, Scheme]) -> None:
        super().__init__(graph, params)
        self._schemes = schemes
        self._last_inputs: tuple[int, InputStatistics] | None = None
        self.quantised: dict[str, Packed] = {}

    def run(self, inputs: Sequence[Array]) -> dict[str, Packed]:
        """Return the quantised matrices; `inputs` are the network's."""
        nodes = self.graph.nodes
        keys = {at: key for at, node in enumerate(nodes) if (key := self.product_key(node)) in self._schemes}
        with WorkMeter("calibrating", len(set(keys.values())), unit="matrix") as self._meter:
            self.run_nodes(dict(zip(self.graph.inputs, inputs, strict=True)), stop=max(keys, default=-1) + 1)
        return self.quantised

    def before_node(self, node: Node, values: dict[int, Array]) -> None:
        key = self.product_key(node)
        if key is None or key not in self._schemes or key in self.quantised:
            return
        self.quantised[key] = self._quantise_weight(key, self.root[node.inputs[0]], values[node.inputs[0]])
        factor = node.inputs[1]  # a view of the parameter, created before
        values[factor] = decode(self.quantised[key]).reshape(values[factor].shape)
        self._meter.step()

    def parameter(self, key: str) -> Array:
        return decode(self.quantised[key]) if key in self.quantised else super().parameter(key)

    def _quantise_weight(self, key: str, source: int, x: Array) -> Packed:
        if self._last_inputs is None or self._last_inputs[0] != source:
            rows = x.reshape(-1, x.shape[-1])
            self._last_inputs = source, InputStatistics(rows.T @ rows)
        weight = super().parameter(key)
        return quantise(weight.reshape(-1, weight.shape[-1]), self._last_inputs[1], self._schemes[key])
