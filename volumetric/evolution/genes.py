"""Node and connection genes as NumPy records, and the names of activations and aggregations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

NODE = np.dtype([("id", "i4"), ("activation", "u1"), ("aggregation", "u1"), ("bias", "f8")], align=True)
"""A node gene. Outputs and hidden nodes have one; inputs are the ids below the number of inputs."""

CONNECTION = np.dtype(
    [("innovation", "i8"), ("source", "i4"), ("target", "i4"), ("weight", "f8"), ("enabled", "?")], align=True
)
"""A connection gene; `innovation` is its historical marking."""

ACTIVATIONS = (
    "steep_sigmoid",  # 1 / (1 + exp(-4.9 x)), as in the NEAT paper
    "sigmoid",
    "tanh",
    "relu",
    "linear",
    "leaky_relu",
    "silu",
    "gelu",
    "sin",
    "gaussian",  # exp(-x²)
    "abs",
    "square",
    "clamp",  # to [-1, 1]
)
"""Names by code; the order matches the compiled kernel."""

AGGREGATIONS = ("sum", "mean", "product", "max", "min")
"""Aggregations of a node's inputs; a node without connections receives 0. Names by code, as for activations."""

Records: TypeAlias = NDArray[Any]
"""A structured array of `NODE` or `CONNECTION`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenomeInterface:
    """The interface that all genomes of a run share.

    Attributes
    ----------
    inputs, outputs : numbers of inputs and outputs; inputs are the nodes 0 … inputs - 1, outputs the following nodes
    recurrent : whether connections may form cycles
    steps : updates of all nodes in one activation of a recurrent genome
    """

    inputs: int
    outputs: int
    recurrent: bool = False
    steps: int = 1
