"""Scans: their gradients against central differences, the steps written out, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.scans import SCANS, ScanCase, detached, elman, emit, minimal_gated, normal
from tests.layers.test_vjp import differences
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.graph import Graph, GraphBuilder, differentiate, interpret
from volumetric.graph.binding import bind, is_open
from volumetric.graph.id_ranges import id_bounds
from volumetric.graph.unroll_scans import unroll_scans


def with_gradients(case: ScanCase, seeded: slice = slice(None)) -> tuple[Graph, list[int], int]:
    """Ys and last states, then the gradients; the numbers of the arrays that have one; how many outputs are seeded."""
    work, inputs, outputs = emit(case)
    seeds = {}
    for i in outputs[seeded]:
        seeds[i] = work.input("seed", work.shape(i))
    wanted = [i for i, x in zip(inputs, case.arrays, strict=True) if x.dtype != np.int32]
    grads = differentiate(work, seeds, wanted)
    return work.finish([*outputs, *grads.values()]), [inputs.index(i) for i in grads], len(seeds)


def in_float64(case: ScanCase) -> list[np.ndarray]:
    return [x if x.dtype == np.int32 else x.astype(np.float64) for x in case.arrays]


PARTS = {"all": slice(None), "first": slice(1), "last": slice(-1, None)}
SMALL = [name for name in SCANS if name not in ("gated-wide", "one-step-reverse")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "seeded"),
    [*((name, "all") for name in SMALL), *(("elman", part) for part in PARTS), *(("passing", part) for part in PARTS)],
)
def test_gradients_equal_central_differences(name: str, seeded: str) -> None:
    case, part = SCANS[name], PARTS[seeded]
    graph, having, count = with_gradients(case, part)
    work, _, outputs = emit(case)
    forward = work.finish(outputs[part])
    xs, rng = in_float64(case), np.random.default_rng(3)
    seeds = [rng.standard_normal(forward.tensors[i].shape) for i in forward.outputs]
    assert len(seeds) == count
    grads = interpret(graph, [*xs, *seeds], {}, np.float64)[len(outputs) :]
    for i, grad in zip(having, grads, strict=True):

        def loss() -> float:
            made = interpret(forward, xs, {}, np.float64)
            return sum(float((y * seed).sum()) for y, seed in zip(made, seeds, strict=True))

        want = differences(loss, xs[i])
        scale = max(np.abs(want).max(initial=0), 1e-3)
        np.testing.assert_allclose(grad / scale, want / scale, rtol=0, atol=2e-6, err_msg=f"input {i}")
    if seeded == "all" and "passing" not in name:
        assert len(having) == sum(x.dtype != np.int32 for x in xs)


@pytest.mark.parametrize("name", SCANS)
def test_steps_written_out_give_the_same(name: str) -> None:
    case = SCANS[name]
    graph, _, _ = with_gradients(case)
    written = unroll_scans(graph)
    assert "scan" in {node.op for node in graph.nodes}
    assert "scan" not in {node.op for node in written.nodes}
    inputs = [*in_float64(case), *(np.full(graph.tensors[i].shape, 0.5) for i in graph.inputs[len(case.arrays) :])]
    for got, want in zip(*(interpret(g, inputs, {}, np.float64) for g in (written, graph)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_what_is_the_same_in_all_steps_is_written_once() -> None:
    def body(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
        y = work.add(xs[0], work.unary(work.unary(constants[0], "exp"), "tanh"))
        return [y], []

    work = GraphBuilder()
    ys, _ = work.scan(body, [work.input("x", (9, 4))], [work.input("c", (4,))])
    names = [node.attrs.get("name") for node in unroll_scans(work.finish(ys)).nodes]
    assert [names.count(name) for name in ("exp", "tanh", "add")] == [1, 1, 9]


def test_trails_are_written_for_a_gradient_only() -> None:
    work, _, outputs = emit(SCANS["elman"])
    forward = unroll_scans(work.finish(outputs))
    assert [node.op for node in forward.nodes].count("concat") == 1


def test_layers_of_nodes_are_kept() -> None:
    work = GraphBuilder()
    with work.at("1.0.0", mixes=True):
        ys, _ = work.scan(
            elman, [work.input("x", (2, 1, 3))], [work.input("w", (3, 3)), work.input("b", (3,))], [work.zeros((1, 3))]
        )
    assert {(node.where, node.mixes) for node in unroll_scans(work.finish(ys)).nodes} == {("1.0.0", True)}


def test_differentiation_stops_inside_of_a_body_where_told() -> None:
    case = ScanCase(body=detached, xs=(normal(2, 1, 1),), states=(normal(1, 1),))
    graph, _, _ = with_gradients(case)
    x, h = in_float64(case)
    found = interpret(graph, [x, h, np.zeros((2, 1, 1)), np.ones((1, 1))], {}, np.float64)
    before = h / (h * h + 1) + x[0]
    np.testing.assert_allclose(found[-1], 1 / (before**2 + 1) / (h * h + 1))


def test_a_scan_over_the_rows_of_a_call() -> None:
    work = GraphBuilder()
    x = work.input("x", (-1, 3))

    def body(work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]) -> tuple[list[int], list[int]]:
        return (total := [work.add(xs[0], states[0])]), total

    ys, _ = work.scan(body, [x], states=[work.zeros((3,))])
    graph = work.finish(ys)
    assert is_open(graph)
    x = np.arange(12.0).reshape(4, 3)
    for one in (graph, bind(graph, 4), unroll_scans(bind(graph, 4))):
        np.testing.assert_array_equal(interpret(one, [x], {})[0], x.cumsum(0))


def test_ids_are_known_through_steps() -> None:
    work, _, outputs = emit(SCANS["ids"])
    [bound] = id_bounds(unroll_scans(work.finish(outputs)))[0]
    assert bound == (7, 0, None)


def test_ids_of_columns_have_their_own_bounds() -> None:
    work = GraphBuilder()
    ids = work.input("ids", (3, 2), "int32")
    small, large = work.input("small", (2, 1)), work.input("large", (9, 1))
    left, right = (work.reshape(work.part(ids, 1, i, i + 1), (3,)) for i in range(2))
    graph = work.finish([work.gather_rows(small, left), work.gather_rows(large, right)])
    found = {bound.below: bound for bound in id_bounds(graph)[0]}
    assert {below: bound.where.tolist() for below, bound in found.items() if bound.where is not None} == {
        2: [0, 2, 4],
        9: [1, 3, 5],
    }
    value = np.array([[0, 8], [2, 1], [1, 9]], np.int32)
    assert {below: bound.wrong(value).tolist() for below, bound in found.items()} == {2: [2], 9: [9]}


def test_a_graph_prints_bodies() -> None:
    work, _, outputs = emit(SCANS["elman"])
    lines = str(work.finish(outputs)).splitlines()
    assert " = scan(" in lines[4]
    assert "tanh" in "".join(line for line in lines if line.startswith("    "))
    assert "body=" not in "".join(lines)


def test_the_gradient_of_a_scan_has_none() -> None:
    work, inputs, outputs = emit(SCANS["elman"])
    seed = work.input("seed", work.shape(outputs[0]))
    g = differentiate(work, {outputs[0]: seed}, inputs)[inputs[0]]
    with pytest.raises(UnsupportedError, match="the gradient of scan"):
        differentiate(work, {g: seed}, inputs)


def test_trails_have_no_gradient() -> None:
    work, inputs, _ = emit(SCANS["elman"])
    trail = work.nodes[-1].outputs[-1]
    with pytest.raises(UnsupportedError, match="the states before each step"):
        differentiate(work, {trail: work.input("seed", work.shape(trail))}, inputs)


def refused(message: str, error: type[Exception] = ShapeError):
    return pytest.raises(error, match=message)


def test_what_does_not_fit_is_refused() -> None:
    work = GraphBuilder()
    x, h, ids = work.input("x", (4, 3)), work.input("h", (3,)), work.input("ids", (4, 1), "int32")

    def scan(make, xs=(x,), states=(h,), **more):
        def body(work, xs, constants, states):
            return make(work, *xs, *constants, *states)

        return work.scan(body, xs, (), states, **more)

    with refused("expected sequences or a length", SpecError):
        scan(lambda w, h: ([], [h]), xs=())
    with refused("changes the shape of state 0"):
        scan(lambda w, x, h: ([], [w.reshape(h, (1, 3))]))
    with refused("must return as many states"):
        scan(lambda w, x, h: ([], []))
    with refused("uses 'w'", SpecError):
        scan(lambda w, x, h: ([w.add(x, w.stored_tensor("w", (3,)))], [h]))
    with refused("uses 'w'", SpecError):
        scan(lambda w, x, h: ([w.assign("w", x)], [h]))
    with refused("a step of a sequence needs an axis"):
        scan(lambda w, x, h: ([], [h]), xs=(h,))
    with refused(r"x is float32 \[4, 3\], the body expects float32 \[5, 3\]"):
        scan(lambda w, x, h: ([x], [h]), length=5)
    with refused("ys and states must be float32"):
        scan(lambda w, ids, h: ([ids], [h]), xs=(ids,))
    with refused("needs a float32 input"):
        scan(lambda w, ids: ([w.zeros((1,))], []), xs=(ids,), states=())
    assert not work.nodes


def test_a_long_scan_keeps_no_more_than_it_must() -> None:
    """Gradients of constants are neither kept nor added up step by step where one product gives them in the end."""
    constants = normal(20, 20), normal(20, 20)
    case = ScanCase(body=minimal_gated, xs=(normal(50, 1, 40),), constants=constants, states=(normal(1, 20),))
    graph, _, _ = with_gradients(case)
    scans = [node for node in graph.nodes if node.op == "scan"]
    handed = [graph.tensors[i].shape for i in scans[1].outputs]
    assert handed[0] == (50, 1, 40)
    assert max(handed[1:]) <= (50, 1, 20)
    products = [node for node in graph.nodes if node.op == "gemm"]
    assert [[graph.tensors[i].shape for i in node.inputs] for node in products] == [[(1, 50, 20)] * 2] * 2
    written = unroll_scans(graph)  # of the steps forward nothing is computed once more
    assert sum(node.op == "gemm" for node in written.nodes) == 50 * (2 + 2) + 2


def test_what_is_no_product_is_added_up_step_by_step() -> None:
    case = SCANS["passing"]
    graph, _, _ = with_gradients(case)
    scans = [node for node in graph.nodes if node.op == "scan"]
    assert [graph.tensors[i].shape for i in scans[1].outputs][-1] == (1, 4)
