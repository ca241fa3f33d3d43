"""Element-wise operations as formulas: the same bits as launches of their own, and fewer of them."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

from tests.devices import graphs
from volumetric.base._typing import Array
from volumetric.devices.gpu.graph import encode_graph, formula_fusion
from volumetric.devices.gpu.graph.formula_fusion import fuse_formulas
from volumetric.devices.gpu.kernels.graph import formulas
from volumetric.devices.gpu.kernels.graph.formulas import MOST, STEPS
from volumetric.formula.binary_functions import FUSED, PAIRS
from volumetric.formula.unary_functions import FUNCTIONS, SLOPES
from volumetric.graph import Graph, GraphBuilder
from volumetric.graph.interpret import interpret

RNG = np.random.default_rng(4)
UNARY = ("affine", "abs", "square", "neg", "sqrt")


def run(graph: Graph, inputs: list[Array], held: dict[str, Array] | None = None) -> tuple[list[Array], list[str]]:
    """What a graph gives on the GPU, and its kernels."""
    device = graphs("gpu")
    store = device.store()
    for key, value in (held or {}).items():
        store.write(key, value)
    program = device.compile(graph, store)
    return program.run(inputs), [entry.dispatch.kernel for entry in program.recording.entries]


def odd(*shape: int) -> Array:
    """Numbers, some of them 0, infinite or none at all."""
    made = RNG.standard_normal(shape).astype(np.float32)
    made[RNG.random(shape) < 0.3] = 0
    made[RNG.random(shape) < 0.1] = np.inf
    made[RNG.random(shape) < 0.1] = np.nan
    return made


@pytest.mark.parametrize("name", FUSED)
def test_a_step_has_the_bits_of_the_operation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind an addition, with parts, turned and repeated."""
    work = GraphBuilder()
    a, b = work.input("a", (3, 1, 5)), work.input("b", (5, 4))
    turned = work.part(work.permute(b, (1, 0)), 0, 1, 4)
    left = work.add(work.broadcast(a, (3, 3, 5)), work.reshape(turned, (1, 3, 5)))
    y = work.affine(left, 0.7, -0.3) if name == "affine" else None
    y = work.unary(left, name) if name in UNARY and y is None else y
    y = work.binary(name, left, turned) if y is None else y
    graph, inputs = work.finish([y]), [odd(3, 1, 5), odd(5, 4)]
    [found], kernels = run(graph, inputs)
    assert kernels == ["graph/formula"]
    monkeypatch.setattr(encode_graph, "_PASSES", tuple(one for one in encode_graph._PASSES if one is not fuse_formulas))
    [want], apart = run(graph, inputs)
    assert len(apart) == 5
    np.testing.assert_array_equal(found, want)


def test_what_others_read_is_there() -> None:
    """Also what is read as a tensor besides, what a formula has no room for, and what is too large for one."""
    work = GraphBuilder()
    inputs = [work.input(f"x{n}", (4, 6)) for n in range(7)]
    deep = inputs[0]
    for step in range(2 * STEPS):
        deep = work.affine(deep, 1.0, float(step))
    met = inputs[0]
    for x in inputs[1:]:
        met = work.binary("mul", met, x)
    shared = work.affine(inputs[1], 2.0, 1.0)
    both = work.add(shared, work.reduce(shared, "sum", (1,)))
    split = work.reshape(work.part(inputs[2], 1, 1, 5), (2, 8))
    turned = work.reshape(work.permute(inputs[3], (1, 0)), (4, 6))
    large = work.broadcast(work.reshape(inputs[4], (1, 24)), (MOST // 16, 24))
    much = work.reduce(work.unary(work.affine(large, 3.0, 0.0), "square"), "max", (0,))
    made = [deep, met, shared, both, work.affine(split, -1.0, 1.0), work.add(turned, turned), much]
    graph, values = work.finish(made), [RNG.standard_normal((4, 6)).astype(np.float32) for _ in inputs]
    found, _ = run(graph, values)
    for i, (one, other) in enumerate(zip(found, interpret(graph, values, {}, np.float64), strict=True)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=str(i))


def test_a_formula_reads_no_buffer_that_was_written_meanwhile() -> None:
    work = GraphBuilder()
    held, x = work.stored_tensor("held", (3, 2)), work.input("x", (3, 2))
    before = work.affine(work.part(held, 0, 1, 3), 2.0, 0.0)
    still = work.reshape(work.permute(work.reshape(held, (3, 1, 2)), (1, 0, 2)), (3, 2))
    work.emit("assign", (x,), key="held")
    graph = work.finish([work.affine(before, 1.0, 1.0), work.affine(still, 1.0, 0.0)])
    was, given = (RNG.standard_normal((3, 2)).astype(np.float32) for _ in range(2))
    [late, whole], _ = run(graph, [given], {"held": was})
    np.testing.assert_allclose(late, 2 * was[1:] + 1, rtol=1e-6)
    np.testing.assert_array_equal(whole, was)


def test_what_stays_in_its_order_is_not_moved() -> None:
    work = GraphBuilder()
    x = work.input("x", (1, 7, 1, 3))
    rows = work.reshape(work.reduce(work.permute(x, (2, 1, 0, 3)), "mean", (0,)), (7, 3))
    taken = work.gather_rows(rows, work.constant(np.arange(7, dtype=np.int32)))
    some = work.gather_rows(rows, work.constant(np.arange(6, dtype=np.int32)))
    graph = work.finish([work.gemm(work.reshape(taken, (1, 7, 3)), work.reshape(some, (1, 6, 3)), trans_b=True)])
    value: Any = RNG.standard_normal((1, 7, 1, 3)).astype(np.float32)
    [found], kernels = run(graph, [value])
    assert sorted(kernels) == ["graph/gather_rows", "graph/gemm"] or "graph/few_rows" in kernels
    flat = value.reshape(7, 3)
    np.testing.assert_allclose(found[0], flat @ flat[:6].T, rtol=1e-5, atol=1e-6)


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formulas of more than three elements are written as code."""
    monkeypatch.setattr(formula_fusion, "MOST", 3)
    monkeypatch.setattr(formulas, "MOST", 3)


@pytest.mark.usefixtures("nothing_is_small")
def test_written_steps_have_the_values_of_the_operations() -> None:
    """Each function of operands that repeat and of which parts are read, some of them summed by one formula."""
    work = GraphBuilder()
    a, b = work.input("a", (7, 1, 5)), work.input("b", (3, 6))
    left, right = work.broadcast(a, (7, 3, 5)), work.reshape(work.part(b, 1, 1, 6), (1, 3, 5))
    above = work.affine(work.unary(left, "square"), 1.0, 0.5)
    steps = [work.binary(name, left, right) for name in PAIRS if name != "mask"]
    steps += [work.unary(above, name) for name in FUNCTIONS if name != "affine"]
    met = work.add(left, right)
    steps += [work.unary_grad(met, above, name) for name in SLOPES]
    sums = [reduce(work.add, steps[at : at + 5]) for at in range(0, len(steps), 5)]
    masked = work.unary(work.binary("mask", left, work.binary("greater", left, right)), "neg")
    graph = work.finish([*sums, masked])
    inputs = [RNG.standard_normal(shape).astype(np.float32) for shape in ((7, 1, 5), (3, 6))]
    found, kernels = run(graph, inputs)
    assert kernels == ["graph/formula_written"] * len(graph.outputs)
    for i, (one, other) in enumerate(zip(found, interpret(graph, inputs, {}, np.float64), strict=True)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=str(i))


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("axes", [(0, 2), (1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("name", ["mean", "max"])
def test_reductions_compute_what_they_sum(axes: tuple[int, ...], name: str) -> None:
    """The deviations from a mean are written nowhere, though two reductions and a product read them."""
    work = GraphBuilder()
    x, g = work.input("x", (6, 3, 35, 2)), work.input("g", (6, 3, 35, 2))
    apart = work.binary("sub", x, work.reduce(x, "mean", axes))
    squares = work.reduce(work.unary(apart, "square"), name, axes)
    along = work.reduce(work.binary("mul", work.affine(apart, -0.5, 1.0), g), name, axes)
    graph = work.finish([squares, along, work.binary("mul", apart, g)])
    inputs = [RNG.standard_normal((6, 3, 35, 2)).astype(np.float32) for _ in range(2)]
    found, kernels = run(graph, inputs)
    assert set(kernels) == {"graph/reduce", "graph/formula_written"}
    assert kernels.count("graph/formula_written") == 1
    for one, other in zip(found, interpret(graph, inputs, {}, np.float64), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("nothing_is_small")
def test_a_small_reader_does_not_leave_out_the_rest_of_a_large_formula() -> None:
    """It would compute a few elements of what others may read whole, step by step."""
    work = GraphBuilder()
    large = work.affine(work.unary(work.input("x", (5, 4)), "square"), 2.0, 1.0)
    graph = work.finish(
        [work.part(large, 0, 1, 2), work.affine(work.part(work.part(large, 0, 0, 1), 1, 1, 3), 3.0, 0.0)]
    )
    x = RNG.standard_normal((5, 4)).astype(np.float32)
    [row, pair], kernels = run(graph, [x])
    assert kernels.count("graph/formula_written") == 2
    np.testing.assert_allclose(row, 2 * x[1:2] ** 2 + 1, rtol=1e-6)
    np.testing.assert_allclose(pair, 3 * (2 * x[:1, 1:3] ** 2 + 1), rtol=1e-6)


def test_large_tensors_are_written_once() -> None:
    work = GraphBuilder()
    x, a = work.input("x", (2, MOST)), work.input("a", (2, 1))
    y = work.binary("mul", work.unary(work.affine(x, 2.0, 1.0), "tanh"), a)
    graph = work.finish([work.reduce(y, "sum", (1,)), y])
    inputs = [RNG.standard_normal((2, MOST)).astype(np.float32), np.array([[2.0], [-1.0]], np.float32)]
    found, kernels = run(graph, inputs)
    assert kernels.count("graph/formula_written") == 1
    assert not {"graph/elementwise", "graph/binary"} & set(kernels)
    for one, other in zip(found, interpret(graph, inputs, {}, np.float64), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * MOST**0.5)
