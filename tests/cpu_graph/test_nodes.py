"""Cells of nodes with their products and norm: one step of the table, and the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import graphs
from tests.graph.agreement import agree
from volumetric.graph import Graph, GraphBuilder, NumpyGraphs
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.operations.cell import cell_step


def step(cell: str, sizes: tuple[int, int, int, int], *, weights: str, heads: int) -> tuple[Graph, list[np.ndarray]]:
    """Nodes that read messages ``[n, B, K]`` and their h: what they show, if there is a norm, and their states.

    Parameters
    ----------
    weights : ``"own"`` of each node, ``"one"`` set for all, or some ``"sets"``, of which each node gets a copy
    """
    (n, batch, k, h), of = sizes, CELLS[cell]
    wide, work, rng = of.blocks * h, GraphBuilder(), np.random.default_rng(5)
    sets = {"own": n, "one": 1, "sets": 3}[weights]
    shapes = [(n, batch, k), (n, batch, h), (sets, k, wide), (sets, h, wide), (n, wide)]
    shapes += [(len(of.direct), n * batch, h)] if of.direct else []
    shapes += [(1 if weights == "one" else n, 1, h)] if heads else []
    ids = work.constant(np.arange(n, dtype=np.int32) * 5 % 3, "sets")
    m, state, from_m, from_h, bias, *rest = (work.input(f"x{i}", shape) for i, shape in enumerate(shapes))

    def product(x: int, weight: int) -> int:
        rows = x
        if weights == "one":
            rows = work.reshape(x, (1, n * batch, work.shape(x)[2]))
        elif weights == "sets":
            _, deep, _ = work.shape(weight)
            copies = work.gather_rows(work.reshape(weight, (sets, deep * wide)), ids)
            weight = work.reshape(copies, (n, deep, wide))
        return work.reshape(work.gemm(rows, weight), (n * batch, wide))

    before = rest[0] if of.direct else None
    y, others = cell_step(work, of, product(m, from_m), product(state, from_h), bias, before)
    shown = y
    if heads:
        flat = work.norm(work.reshape(y, (n * batch * heads, h // heads)), kind="layer", eps=1e-5)
        shown = work.binary("mul", work.reshape(flat, (n, batch, h)), rest[-1])
    outputs = [shown, *([y] if heads else []), *([] if others is None else [others])]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    arrays[2:4] = [weight / np.float32(weight.shape[1] ** 0.5) for weight in arrays[2:4]]  # gates that are not all shut
    arrays[5:6] = [np.abs(before) + np.float32(0.1) for before in arrays[5:6]]  # by a normaliser is divided
    return work.finish(outputs), arrays


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cell", "sizes", "weights", "heads"),
    [
        ("slstm", (3, 8, 32, 32), "own", 1),
        ("slstm", (5, 7, 3, 6), "one", 2),
        ("slstm", (1, 25, 17, 33), "own", 0),
        ("slstm", (7, 5, 4, 6), "sets", 1),
        ("lstm", (4, 1, 5, 20), "own", 0),
        ("rnn_tanh", (7, 2, 1, 3), "one", 0),
        ("rnn_tanh", (2, 3, 515, 16), "own", 0),
    ],
)
def test_a_step_of_nodes(cell: str, sizes: tuple[int, int, int, int], weights: str, heads: int) -> None:
    graph, arrays = step(cell, sizes, weights=weights, heads=heads)
    program = graphs("cpu").compile(graph, graphs("cpu").store())
    assert [node.op for node in program.graph.nodes if node.op != "reshape"] == ["cell_nodes"]
    want = NumpyGraphs(np.float64)
    right = want.compile(graph, want.store()).run(arrays)
    for i, (got, expected) in enumerate(zip(program.run(arrays), right, strict=True)):
        agree(got, expected.astype(np.float32), f"output {i}")
