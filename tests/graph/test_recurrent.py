"""Gradients of recurrent cells into everything that they take, their first states among it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.devices import FAST, graphs
from tests.graph.agreement import agree
from tests.graph.op_cases import OP_CASES, OpCase
from tests.graph.scans import product
from volumetric.layers.recurrent import CELLS
from volumetric.runtime.graph import Graph, GraphBuilder, NumpyGraphs, differentiate, interpret

SHAPES = ("2-5-3", "17-3-33", "1-1-1")
Emit = Callable[[GraphBuilder, list[int], OpCase], int]


def by_node(work: GraphBuilder, inputs: list[int], case: OpCase) -> int:
    return work.emit("recurrent", inputs, **case.attrs)[0]


def by_scan(work: GraphBuilder, inputs: list[int], case: OpCase) -> int:
    """The equations of `layers.recurrent` as a body."""
    cell, (from_x, weight, *rest) = case.attrs["cell"], inputs
    states, bias = rest[: len(CELLS[cell].states)], rest[len(CELLS[cell].states) :]

    def body(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
        r = product(work, states[0], constants[0])
        r = work.add(r, *constants[1:])
        sizes = [work.shape(states[0])[1]] * CELLS[cell].blocks
        a, b = work.split(xs[0], sizes, 1), work.split(r, sizes, 1)
        if cell == "gru":
            reset, z = (work.unary(work.add(a[k], b[k]), "sigmoid") for k in (0, 1))
            n = work.unary(work.add(a[2], work.binary("mul", reset, b[2])), "tanh")
            h = work.add(work.binary("mul", work.affine(z, -1.0, 1.0), n), work.binary("mul", z, states[0]))
            return [h], [h]
        pre = [work.add(*both) for both in zip(a, b, strict=True)]
        if cell == "lstm":
            i, f, o = (work.unary(pre[k], "sigmoid") for k in (0, 1, 3))
            c = work.add(work.binary("mul", f, states[1]), work.binary("mul", i, work.unary(pre[2], "tanh")))
            h = work.binary("mul", o, work.unary(c, "tanh"))
            return [h], [h, c]
        h = work.unary(pre[0], cell.removeprefix("rnn_"))
        return [h], [h]

    [y], _ = work.scan(body, [work.permute(from_x, (1, 0, 2))], [weight, *bias], states)
    return work.permute(y, (1, 0, 2))


def with_gradients(case: OpCase, emit: Emit) -> tuple[Graph, list[np.ndarray]]:
    """The output and the gradients of all inputs; what it takes."""
    work = GraphBuilder()
    inputs = [work.input("x", x.shape) for x in case.inputs]
    y = emit(work, inputs, case)
    seed = np.random.default_rng(4).standard_normal(work.shape(y)).astype(np.float32)
    grads = differentiate(work, {y: work.input("seed", seed.shape)}, inputs)
    return work.finish([y, *(grads[i] for i in inputs)]), [*case.inputs, seed]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_is_the_scan_of_its_equations(cell: str, shape: str) -> None:
    case = OP_CASES[f"{cell}-{shape}"]
    found = []
    for emit in (by_node, by_scan):
        graph, inputs = with_gradients(case, emit)
        found.append(interpret(graph, [x.astype(np.float64) for x in inputs], {}, np.float64))
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cell", CELLS)
def test_gradients_agree_with_the_interpreter(cell: str, shape: str, name: str) -> None:
    graph, inputs = with_gradients(OP_CASES[f"{cell}-{shape}"], by_node)
    found, want = (one.compile(graph, one.store()).run(inputs) for one in (graphs(name), NumpyGraphs(np.float64)))
    for i, (got, right) in enumerate(zip(found, want, strict=True)):
        agree(got, right.astype(np.float32), f"output {i}")


@pytest.mark.parametrize("cell", CELLS)
def test_nothing_depends_on_no_steps(cell: str) -> None:
    work, size, many = GraphBuilder(), 3, CELLS[cell].blocks
    inputs = [work.input("x", (2, 0, many * size)), work.input("w", (many * size, size))]
    inputs += [work.input(name, (2, size)) for name in CELLS[cell].states]
    y = work.emit("recurrent", inputs, cell=cell, bias=False)[0]
    assert differentiate(work, {y: work.input("seed", (2, 0, size))}, inputs) == {}
