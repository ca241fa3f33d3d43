"""Gradients of recurrent cells into everything that they take, their first states among it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.devices import FAST, graphs
from tests.graph.agreement import agree
from tests.graph.op_cases import OP_CASES
from tests.graph.op_cases.case import OpCase
from tests.graph.scans import product
from volumetric.base.errors import UnsupportedError
from volumetric.graph import Graph, GraphBuilder, NumpyGraphs, differentiate, interpret
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.operations.cell import cell_step
from volumetric.graph.operations.recurrent_inputs import recurrent_inputs

SHAPES = ("2-5-3", "17-3-33", "1-1-1", "5-6-7-resets")
Emit = Callable[[GraphBuilder, list[int], OpCase], list[int]]
"""What gives y and the last of each state beside h."""


def by_node(work: GraphBuilder, inputs: list[int], case: OpCase) -> list[int]:
    return list(work.emit("recurrent", inputs, **case.attrs)[: len(CELLS[case.attrs["cell"]].states)])


def by_head(work: GraphBuilder, h: int, weight: int) -> int:
    """``W h``, block by block, where a unit sees those of its head."""
    (_, size), (wide, width) = work.shape(h), work.shape(weight)
    if width == size:
        return product(work, h, weight)
    heads, blocks = size // width, wide // size
    found = []
    for of in range(blocks):
        for head in range(heads):
            rows = work.part(weight, 0, of * size + head * width, of * size + (head + 1) * width)
            found.append(product(work, work.part(h, 1, head * width, (head + 1) * width), rows))
    return work.concat(found, 1)


def exponential(work: GraphBuilder, pre: list[int], states: list[int]) -> tuple[list[int], list[int]]:
    """A step of an sLSTM."""
    (i, f, z, o), (_, c, n, m) = pre, states
    passed = work.binary("sub", m, work.unary(work.unary(f, "neg"), "softplus"))
    begun = work.binary("greater", work.unary(n, "abs"), work.scalar(0.0))
    most = work.binary("max", i, work.binary("mask", passed, begun))
    i = work.unary(work.binary("sub", i, most), "exp")
    f = work.unary(work.binary("min", work.binary("sub", passed, most), work.scalar(0.0)), "exp")
    c = work.add(work.binary("mul", f, c), work.binary("mul", i, work.unary(z, "tanh")))
    n = work.add(work.binary("mul", f, n), i)
    y = work.binary("div", work.binary("mul", work.unary(o, "sigmoid"), c), work.affine(n, 1.0, 1e-6))
    return [y], [y, c, n, most]


def by_scan(work: GraphBuilder, inputs: list[int], case: OpCase) -> list[int]:
    """The equations of `layers.recurrent` as a body."""
    cell, (from_x, weight, *rest) = case.attrs["cell"], inputs
    states, bias, keep = recurrent_inputs(rest, case.attrs)
    batch, length, _ = work.shape(from_x)
    steps = [work.reshape(work.permute(i, (1, 0)), (length, batch, 1)) for i in keep]

    def body(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
        states = [work.binary("mul_nonzero", state, kept) for state in states for kept in xs[1:]] or states
        r = work.add(by_head(work, states[0], constants[0]), *constants[1:])
        sizes = [work.shape(states[0])[1]] * CELLS[cell].blocks
        a, b = work.split(xs[0], sizes, 1), work.split(r, sizes, 1)
        if cell == "gru":
            reset, z = (work.unary(work.add(a[k], b[k]), "sigmoid") for k in (0, 1))
            n = work.unary(work.add(a[2], work.binary("mul", reset, b[2])), "tanh")
            h = work.add(work.binary("mul", work.affine(z, -1.0, 1.0), n), work.binary("mul", z, states[0]))
            return [h], [h]
        pre = [work.add(*both) for both in zip(a, b, strict=True)]
        if cell == "slstm":
            return exponential(work, pre, states)
        if cell == "lstm":
            i, f, o = (work.unary(pre[k], "sigmoid") for k in (0, 1, 3))
            c = work.add(work.binary("mul", f, states[1]), work.binary("mul", i, work.unary(pre[2], "tanh")))
            h = work.binary("mul", o, work.unary(c, "tanh"))
            return [h], [h, c]
        h = work.unary(pre[0], cell.removeprefix("rnn_"))
        return [h], [h]

    [y], last = work.scan(body, [work.permute(from_x, (1, 0, 2)), *steps], [weight, *bias], states)
    return [work.permute(y, (1, 0, 2)), *last[1:]]


def by_step(work: GraphBuilder, inputs: list[int], case: OpCase) -> list[int]:
    """Steps of `cell` as a body."""
    cell, (from_x, weight, *rest) = CELLS[case.attrs["cell"]], inputs
    starts, bias, keep = recurrent_inputs(rest, case.attrs)
    batch, length, wide = work.shape(from_x)
    size = wide // cell.blocks
    of_x = bias[0] if bias and not cell.apart else work.zeros((wide,))
    of_h = bias if cell.apart else ()
    steps = [work.reshape(work.permute(i, (1, 0)), (length, batch, 1)) for i in keep]

    def body(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
        states = [work.binary("mul_nonzero", state, kept) for state in states for kept in xs[1:]] or states
        from_h = work.add(by_head(work, states[0], constants[0]), *constants[2:])
        named = dict(zip(cell.states, states, strict=True))
        found = [work.reshape(named[name], (1, batch, size)) for name in cell.direct]
        h, others = cell_step(work, cell, xs[0], from_h, constants[1], work.concat(found, 0) if found else None)
        after = [] if others is None else work.split(others, (1,) * (len(states) - 1), 0)
        return [h], [h, *(work.reshape(part, (batch, size)) for part in after)]

    fixed = [weight, work.reshape(of_x, (1, wide)), *of_h]
    [y], last = work.scan(body, [work.permute(from_x, (1, 0, 2)), *steps], fixed, starts)
    return [work.permute(y, (1, 0, 2)), *last[1:]]


def with_gradients(case: OpCase, emit: Emit) -> tuple[Graph, list[np.ndarray]]:
    """All outputs, into all of which gradients come, and those of all inputs; what it takes."""
    work, rng = GraphBuilder(), np.random.default_rng(4)
    inputs = [work.input("x", x.shape) for x in case.inputs]
    outputs = emit(work, inputs, case)
    seeds = [rng.standard_normal(work.shape(i)).astype(np.float32) for i in outputs]
    wanted = inputs[:-1] if case.attrs["resets"] else inputs
    grads = differentiate(work, {i: work.input("seed", work.shape(i)) for i in outputs}, wanted)
    return work.finish([*outputs, *(grads[i] for i in wanted)]), [*case.inputs, *seeds]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_is_the_scan_of_its_equations(cell: str, shape: str) -> None:
    case = OP_CASES[f"{cell}-{shape}"]
    found = []
    for emit in (by_node, by_scan, by_step):
        graph, inputs = with_gradients(case, emit)
        found.append(interpret(graph, [x.astype(np.float64) for x in inputs], {}, np.float64))
    for got, *wants in zip(*found, strict=True):
        for want in wants:
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cell", CELLS)
def test_gradients_agree_with_the_interpreter(cell: str, shape: str, name: str) -> None:
    graph, inputs = with_gradients(OP_CASES[f"{cell}-{shape}"], by_node)
    found, want = (one.compile(graph, one.store()).run(inputs) for one in (graphs(name), NumpyGraphs(np.float64)))
    for i, (got, right) in enumerate(zip(found, want, strict=True)):
        agree(got, right.astype(np.float32), f"output {i}")


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if "resets" not in shape])
def test_the_last_state_alone_may_get_a_gradient(shape: str, name: str) -> None:
    case, found = OP_CASES[f"lstm-{shape}"], []
    for one in (graphs(name), NumpyGraphs(np.float64)):
        work = GraphBuilder()
        inputs = [work.input("x", x.shape) for x in case.inputs]
        _, last = by_node(work, inputs, case)
        grads = differentiate(work, {last: work.input("seed", work.shape(last))}, inputs)
        graph = work.finish([grads[i] for i in inputs])
        found.append(one.compile(graph, one.store()).run([*case.inputs, np.ones(work.shape(last), np.float32)]))
    for got, want in zip(*found, strict=True):
        agree(got, want.astype(np.float32), "gradient")


def test_what_is_kept_for_gradients_has_none() -> None:
    case, work = OP_CASES["gru-2-5-3"], GraphBuilder()
    inputs = [work.input("x", x.shape) for x in case.inputs]
    kept = work.emit("recurrent", inputs, **case.attrs)[1]
    with pytest.raises(UnsupportedError, match="stores for its gradient have no gradient"):
        differentiate(work, {kept: work.input("seed", work.shape(kept))}, inputs)


@pytest.mark.parametrize("cell", CELLS)
def test_nothing_depends_on_no_steps(cell: str) -> None:
    work, size, many = GraphBuilder(), 3, CELLS[cell].blocks
    inputs = [work.input("x", (2, 0, many * size)), work.input("w", (many * size, size))]
    inputs += [work.input(name, (2, size)) for name in CELLS[cell].states]
    y = work.emit("recurrent", inputs, cell=cell, bias=False, resets=False)[0]
    assert differentiate(work, {y: work.input("seed", (2, 0, size))}, inputs) == {}
