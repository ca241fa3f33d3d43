"""One case of an operation, the graph of its node, and random inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from volumetric.graph import Graph, GraphBuilder

RNG = np.random.default_rng(20)


@dataclass(frozen=True, kw_only=True)
class OpCase:
    """One node: its inputs (int32 or float32) and attributes."""

    op: str
    inputs: tuple[np.ndarray, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


def case_graph(case: OpCase) -> Graph:
    """A graph of the one node: its inputs are the graph's, and so are its outputs."""
    work = GraphBuilder()
    inputs = [
        work.input(f"x{i}", x.shape, "int32" if np.issubdtype(x.dtype, np.integer) else "float32")
        for i, x in enumerate(case.inputs)
    ]
    return work.finish(work.emit(case.op, inputs, **case.attrs))


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ids(count: int, below: int) -> np.ndarray:
    return RNG.integers(0, below, count).astype(np.int32)


def with_odd_rows(x: np.ndarray) -> np.ndarray:
    """Rows with -inf here and there, of nothing else, with NaN, and with +inf."""
    x = x.copy()
    x[0, ::2] = -np.inf
    x[1] = -np.inf
    x[2, 1] = np.nan
    x[3, 0] = np.inf
    return x


def case_outputs(case: OpCase, dtype: type = np.float32) -> list[np.ndarray]:
    """What the interpreter makes of a case."""
    from volumetric.graph import interpret

    graph = case_graph(case)
    return interpret(graph, case.inputs, {}, dtype)
