"""Run genomes as networks: whole pools in one compiled call, and the NumPy definition that it must agree with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import Array
from volumetric.errors import ShapeError
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS
from volumetric.evolution.genome import Genome, topological_order
from volumetric.evolution.pool import Pool

F64Array = NDArray[np.float64]


def activate(pool: Pool, inputs: Array, state: F64Array | None = None) -> F64Array:
    """Return the outputs of all genomes, float64 [genomes, samples, outputs].

    Parameters
    ----------
    inputs : [samples, inputs], the same for all, or [genomes, samples, inputs]
    state : for recurrent genomes, values of their nodes [genomes, most nodes, samples], which is read and overwritten;
        None starts from zero

    Raises
    ------
    ShapeError : inputs or state do not fit the pool
    """
    from volumetric.kernels.cpu import genomes

    x = _batch(pool, inputs)
    count, width, samples = len(pool), pool.interface.inputs, x.shape[1]
    out = np.empty((count, samples, pool.interface.outputs))
    most_nodes, most_connections = pool.nodes.shape[1], pool.connections.shape[1]
    genes = pool.nodes, pool.connections, pool.sizes
    sources, weights = np.empty(most_connections, np.int64), np.empty(most_connections)
    values = np.empty((width + most_nodes, samples))
    scratch = np.empty((5, most_nodes + 1), np.int64)
    if not pool.interface.recurrent:
        genomes.activate_feed_forward(*genes, x, sources, weights, scratch, values, out)
        return out
    if state is None:
        state = np.zeros((count, most_nodes, samples))
    if state.shape != (count, most_nodes, samples):
        raise ShapeError(f"state has shape {state.shape}, expected {(count, most_nodes, samples)}")
    after = np.empty_like(values)
    genomes.activate_recurrent(*genes, x, pool.interface.steps, sources, weights, scratch[0], values, after, state, out)
    return out


def _batch(pool: Pool, inputs: Array) -> F64Array:
    x = np.ascontiguousarray(inputs, np.float64)
    if x.ndim == 2:
        x = x[None]
    if x.ndim != 3 or x.shape[2] != pool.interface.inputs or x.shape[0] not in (1, len(pool)):
        raise ShapeError(
            f"inputs have shape {np.shape(inputs)}, expected [samples, {pool.interface.inputs}] or "
            f"[{len(pool)}, samples, {pool.interface.inputs}]"
        )
    return x


class Activator:
    """A genome ready to run; a recurrent one keeps the values of its nodes from call to call.

    Parameters
    ----------
    genome : the genome
    """

    def __init__(self, genome: Genome) -> None:
        self._pool, self._row = genome.home
        self._recurrent = genome.interface.recurrent
        self._state: F64Array | None = None

    def reset(self) -> None:
        """Set all nodes to zero."""
        self._state = None

    def __call__(self, inputs: Array | Sequence[Any]) -> F64Array:
        """Return outputs [samples, outputs] for inputs [samples, inputs], or [outputs] for [inputs].

        Raises
        ------
        ShapeError : the last axis has another width than the genome, or the number of samples changed since `reset`
        """
        if self._recurrent and self._state is None:
            shape = np.shape(inputs)
            self._state = np.zeros((self._pool.nodes.shape[1], shape[0] if len(shape) == 2 else 1))
        return self._pool.links.activate_one(self._row, inputs, self._state)


def _erf(x: F64Array) -> F64Array:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x)


REFERENCE: dict[str, Callable[[F64Array], F64Array]] = {
    "steep_sigmoid": lambda x: 1 / (1 + np.exp(-4.9 * x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "linear": lambda x: x,
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x * np.sqrt(0.5))),
    "sin": np.sin,
    "gaussian": lambda x: np.exp(-x * x),
    "abs": np.abs,
    "square": np.square,
    "clamp": lambda x: np.clip(x, -1, 1),
}
"""Activations by name, in NumPy."""

_AGGREGATE: dict[str, Callable[[F64Array], F64Array]] = {
    "sum": lambda terms: terms.sum(0),
    "mean": lambda terms: terms.mean(0),
    "product": lambda terms: terms.prod(0),
    "max": lambda terms: terms.max(0),
    "min": lambda terms: terms.min(0),
}


def activate_reference(genome: Genome, inputs: Array) -> F64Array:
    """Return the outputs of one genome, float64 [samples, outputs], for inputs [samples, inputs]; from zero state."""
    interface = genome.interface
    values = dict(enumerate(np.asarray(inputs, np.float64).T))
    zero = np.zeros(len(inputs))
    values |= dict.fromkeys(genome.nodes["id"].tolist(), zero)
    with np.errstate(over="ignore"):
        if interface.recurrent:
            for _ in range(interface.steps):
                values |= {int(node["id"]): _fire(genome, node, values, zero) for node in genome.nodes}
        else:
            for position in topological_order(genome):
                node = genome.nodes[position]
                values[int(node["id"])] = _fire(genome, node, values, zero)
    return np.stack([values[interface.inputs + o] for o in range(interface.outputs)], axis=1)


def _fire(genome: Genome, node: np.void, values: dict[int, F64Array], zero: F64Array) -> F64Array:
    genes = genome.connections[(genome.connections["target"] == node["id"]) & genome.connections["enabled"]]
    terms = [gene["weight"] * values[int(gene["source"])] for gene in genes]
    total = _AGGREGATE[AGGREGATIONS[node["aggregation"]]](np.array(terms)) if terms else zero
    return REFERENCE[ACTIVATIONS[node["activation"]]](total + node["bias"])
