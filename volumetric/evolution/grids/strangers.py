"""Samples as a network meets them: strangers to each other, whether they are rows or sequences of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import Array
from volumetric.graph.numpy_graphs import NumpyGraphs
from volumetric.network import Network
from volumetric.runtime.graph import graph_of
from volumetric.runtime.lower import lower, mixing_step
from volumetric.runtime.plan import DELAYS, Plan
from volumetric.runtime.reference import ReferenceDevice
from volumetric.runtime.state import by_name, check_input
from volumetric.weights import Params, WeightStore

ROWS: Final = 1024
"""Rows that are computed together, at most, unless a sequence has more."""


def looks_around(plan: Plan) -> bool:
    """Whether the rows of a call see each other. Rows of several axes do not."""
    return mixing_step(plan) is not None


def apart(network: Network, x: Array) -> Array:
    """Return samples ``[samples, …]`` in the form in which no layer of `network` takes them for one sequence.

    Rows that layers would connect become sequences of one row each, ``[samples, 1, …]``; sequences stay as they are.
    """
    rows = x.ndim == len(network.input_shape) + 1
    return x[:, None] if rows and looks_around(lower(network)) else x


def outputs_of(network: Network, params: Mapping[str, WeightStore], x: Array) -> NDArray[np.float32]:
    """Return the outputs for samples: rows ``[samples, …]`` or sequences ``[samples, T, …]``, each as if alone.

    Raises
    ------
    ShapeError : the network reads something else
    """
    by_name(lower(network), x)
    x, given = apart(network, np.asarray(x)), np.asarray(x)
    one_row = x.ndim != given.ndim
    run = _sequences if x.ndim == len(network.input_shape) + 2 else _rows
    with np.errstate(all="ignore"):  # what is not finite is judged by who asked
        outputs = np.concatenate(list(run(network, Params(params), x)))
    return outputs[:, 0] if one_row else outputs


def _rows(network: Network, params: Params, x: Array) -> Iterator[Array]:
    executable = ReferenceDevice().compile(lower(network), params)
    for start in range(0, max(1, len(x)), ROWS):
        yield executable.forward(executable.new_state(), x[start : start + ROWS], last_only=False)


def _sequences(network: Network, params: Params, x: Array) -> Iterator[Array]:
    """Run sequences of one length side by side."""
    plan, device = lower(network), NumpyGraphs()
    if any(step.op in DELAYS for step in plan.steps):
        executable = ReferenceDevice().compile(plan, params)
        for one in x:
            yield executable.forward(executable.new_state(), one, last_only=False)[None]
        return
    checked = check_input(plan, x.reshape(-1, *x.shape[2:])).reshape(x.shape)
    store = device.store()
    for key in plan.params:
        store.put(key, params[key].values())
    together = max(1, ROWS // x.shape[1])
    for start in range(0, len(x), together):
        part = checked[start : start + together]
        graph = graph_of(network, part.shape[1], sequences=len(part))
        yield device.compile(graph, store).run([part])[0]
