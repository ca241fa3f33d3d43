"""A GRU or an LSTM by `scan`, whose steps are written out, beside the operation that has a kernel of its own.

    .venv/bin/python -m benchmarks scan --device cpu --cell lstm --steps 128

Prints for forward, and forward with all gradients: nodes after writing out, seconds to compile (the second time, when
kernels are there), and median and spread of a run, both in turn.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser
from volumetric.devices import open_device
from volumetric.graph import Graph, GraphBuilder, differentiate
from volumetric.graph.unroll_scans import unroll_scans


def gru(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
    """One step, from products with x that are made before."""
    [h], [weight] = states, constants
    rows, size = work.shape(h)
    r = work.gemm(work.reshape(h, (1, rows, size)), work.reshape(weight, (1, 3 * size, size)), trans_b=True)
    a, b = work.split(xs[0], [size] * 3, 1), work.split(work.reshape(r, (rows, 3 * size)), [size] * 3, 1)
    reset, z = (work.unary(work.add(a[k], b[k]), "sigmoid") for k in (0, 1))
    n = work.unary(work.add(a[2], work.binary("mul", reset, b[2])), "tanh")
    h = work.add(n, work.binary("mul", z, work.binary("sub", h, n)))
    return [h], [h]


def lstm(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
    """One step, from products with x that are made before."""
    (h, c), [weight] = states, constants
    rows, size = work.shape(h)
    r = work.gemm(work.reshape(h, (1, rows, size)), work.reshape(weight, (1, 4 * size, size)), trans_b=True)
    i, f, g, o = work.split(work.add(xs[0], work.reshape(r, (rows, 4 * size))), [size] * 4, 1)
    i, f, o, g = (*(work.unary(gate, "sigmoid") for gate in (i, f, o)), work.unary(g, "tanh"))
    c = work.add(work.binary("mul", f, c), work.binary("mul", i, g))
    h = work.binary("mul", o, work.unary(c, "tanh"))
    return [h], [h, c]


CELLS = {"gru": (gru, 3, 1), "lstm": (lstm, 4, 2)}
"""Name → body, blocks of its weight, states."""


def graph_of(cell: str, steps: int, rows: int, size: int, *, by_scan: bool, gradients: bool) -> Graph:
    """The cell over all steps, time first."""
    work, (body, blocks, count) = GraphBuilder(), CELLS[cell]
    x, w = work.input("x", (steps, rows, blocks * size)), work.input("w", (blocks * size, size))
    states = [work.input("state", (rows, size)) for _ in range(count)]
    if by_scan:
        [y], _ = work.scan(body, [x], [w], states)
    else:
        y = work.recurrent(cell, work.permute(x, (1, 0, 2)), w, states, None)[0]
        y = work.permute(y, (1, 0, 2))
    grads = differentiate(work, {y: work.input("g", work.shape(y))}, [x, w, *states]) if gradients else {}
    return work.finish([y, *grads.values()])


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cell", choices=CELLS, default="gru")
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()
    device: Any = open_device(given.device)
    graphs = device.graphs()
    rng = np.random.default_rng(0)
    for gradients in (False, True):
        programs, inputs = {}, []
        for by_scan in (False, True):
            size = given.steps, given.rows, given.size
            graph = graph_of(given.cell, *size, by_scan=by_scan, gradients=gradients)
            shapes = [graph.tensors[i].shape for i in graph.inputs]
            inputs = [(rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32) for shape in shapes]
            graphs.compile(graph, graphs.store()).run(inputs)
            began = time.perf_counter()
            program = graphs.compile(graph, graphs.store())
            took = time.perf_counter() - began
            programs["scan" if by_scan else "recurrent"] = program, took, len(unroll_scans(graph).nodes)
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(given.runs):
            for name, (program, _, _) in programs.items():
                began = time.perf_counter()
                program.run(inputs)
                times[name].append(1e3 * (time.perf_counter() - began))
        for name, (_, took, nodes) in programs.items():
            middle, low, high = statistics.median(times[name]), min(times[name]), max(times[name])
            what = "forward and gradients" if gradients else "forward"
            print(
                f"{what}, {name}: {nodes} nodes, compiled in {took:.3f} s, run {middle:.2f} ms ({low:.2f}–{high:.2f})"
            )


if __name__ == "__main__":
    main()
