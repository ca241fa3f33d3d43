"""The builder, liveness, loop nests, and stores of the reference device."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.devices import DEVICES, device
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph import GraphBuilder, NumpyGraphs, differentiate, interpret
from volumetric.graph.kernel_axes import broadcast_layout, reduce_layout
from volumetric.graph.liveness import last_use, scratch_tensors, view_roots

Shape = tuple[int, ...]
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def test_what_nobody_needs_is_left_out() -> None:
    work = GraphBuilder()
    x = work.input("x", (2, 3))
    work.input("unused", (7,))
    work.softmax(work.unary(x, "exp"))
    y = work.affine(x, 2.0)
    graph = work.finish([y])
    assert [node.op for node in graph.nodes] == ["unary"]
    assert len(graph.inputs) == 2
    assert len(graph.tensors) == 3


def test_an_update_is_kept_though_nobody_reads_it() -> None:
    work = GraphBuilder()
    x = work.input("x", (3,))
    work.assign("kept", work.unary(x, "neg"))
    graph = work.finish([])
    assert [node.op for node in graph.nodes] == ["unary", "assign"]
    assert set(graph.tensors_by_key) == {"kept"}


def test_operations_that_change_nothing_are_not_emitted() -> None:
    work = GraphBuilder()
    x = work.input("x", (2, 3))
    same = (
        work.reshape(x, (2, 3)),
        work.permute(x, (0, 1)),
        work.slice(x, (0, 0), (2, 3)),
        work.pad(x, (0, 0), (0, 0)),
        work.concat((x,), 0),
        work.broadcast(x, (2, 3)),
        work.affine(x, 1.0),
        work.unary(x, "linear"),
        work.unary_grad(x, x, "linear"),
    )
    assert set(same) == {x}
    assert not work.nodes


def test_equal_constants_are_one() -> None:
    work = GraphBuilder()
    a, b = work.constant(np.eye(2)), work.constant(np.eye(2, dtype=np.float32))
    assert a == b != work.constant(np.ones((2, 2)))
    assert work.constant(np.array([1, 0], np.int64)) != work.constant(np.array([1.0, 0.0]))


def test_a_buffer_is_read_as_it_is_after_the_nodes_before() -> None:
    work = GraphBuilder()
    x = work.input("x", (2,))
    before = work.stored_tensor("w", (2,))
    y = work.binary("add", before, x)
    work.assign("w", y)
    after = work.stored_tensor("w", (2,))
    assert after != before
    z = work.binary("mul", after, x)
    graph = work.finish([z])
    buffers = {"w": np.array([1.0, 2.0], np.float32)}
    [got] = interpret(graph, [np.array([3.0, 4.0], np.float32)], buffers)
    assert got.tolist() == [12, 24]
    assert buffers["w"].tolist() == [4, 6]


@pytest.mark.parametrize("through_a_view", [False, True])
def test_reading_what_was_overwritten_is_refused(through_a_view: bool) -> None:
    work = GraphBuilder()
    x = work.input("x", (2, 1))
    before = work.stored_tensor("w", (2, 1))
    view = work.reshape(before, (1, 2)) if through_a_view else before
    work.assign("w", x)
    with pytest.raises(SpecError, match="value of 'w' from before"):
        work.finish([work.unary(view, "exp")])


@pytest.mark.parametrize("name", DEVICES)
def test_outputs_show_what_buffers_held_when_they_were_read(name: str) -> None:
    """Before a first write, through a view too, between two, and behind the last; only the last needs no copy."""
    work = GraphBuilder()
    x = work.input("x", (2, 1))
    before = work.stored_tensor("w", (2, 1))
    view = work.reshape(before, (1, 2))
    work.assign("w", x)
    between = work.stored_tensor("w", (2, 1))
    work.assign("w", work.affine(x, 2.0))
    graph = work.finish([before, view, between, work.stored_tensor("w", (2, 1)), before])
    assert [node.op for node in graph.nodes].count("slice") == 2
    graphs = device(name).graphs()
    store = graphs.store()
    store.write("w", np.array([[5], [6]], np.float32))
    program = graphs.compile(graph, store)
    for held in ([5, 6], [2, 4]):  # the second run begins with what the first wrote
        got = program.run([np.array([[1], [2]], np.float32)])
        assert [y.ravel().tolist() for y in got] == [held, held, [1, 2], [2, 4], held]
    assert [y.shape for y in got] == [(2, 1), (1, 2), (2, 1), (2, 1), (2, 1)]


def test_apply_decides_whether_a_buffer_is_written() -> None:
    work = GraphBuilder()
    work.assign("w", work.input("x", (2,)), work.input("apply", (1,)))
    graph = work.finish([work.stored_tensor("w", (2,))])
    buffers = {"w": np.zeros(2, np.float32)}
    for apply, want in ((0.0, [0, 0]), (1.0, [5, 6])):
        [got] = interpret(graph, [np.array([5.0, 6.0]), np.array([apply])], buffers)
        assert got.tolist() == buffers["w"].tolist() == want


def test_a_buffer_is_not_an_array_of_the_caller() -> None:
    work = GraphBuilder()
    work.assign("w", work.input("x", (2,)))
    graph, buffers, x = work.finish([]), {}, np.ones(2, np.float32)
    interpret(graph, [x], buffers)
    x[...] = 7
    assert buffers["w"].tolist() == [1, 1]


def test_an_update_is_in_place_only_if_asked() -> None:
    for in_place in (True, False):
        work = GraphBuilder()
        w, m = work.stored_tensor("w", (2,)), work.stored_tensor("m", (2,))
        fields = {"weight_decay": 0.0, "momentum": 0.5, "dampening": 0.0, "nesterov": False}
        outputs = work.update(
            "momentum", w, work.input("g", (2,)), [m], work.input("s", (5,)), in_place=in_place, **fields
        )
        graph = work.finish(outputs)
        buffers = {"w": np.ones(2, np.float32), "m": np.ones(2, np.float32)}
        got = interpret(graph, [np.ones(2), np.array([0.5, 2, 0, 0, 1])], buffers)
        assert [g.tolist() for g in got] == [[-0.25, -0.25], [2.5, 2.5]]
        assert (buffers["w"].tolist() == [-0.25, -0.25]) is in_place


def test_gradients_stop_where_told_and_sum_over_readers() -> None:
    work = GraphBuilder()
    x = work.input("x", (3,))
    fixed = work.unary(x, "square")
    work.detached.add(fixed)
    y = work.binary("add", work.binary("mul", fixed, x), work.affine(x, 5.0))
    other = work.input("other", (3,))
    grads = differentiate(work, {y: work.constant(np.ones(3))}, [x, other])
    assert set(grads) == {x}
    graph = work.finish([grads[x]])
    assert interpret(graph, [np.array([1.0, 2, 3]), np.zeros(3)], {})[0].tolist() == [6, 9, 14]


def test_a_seed_has_the_shape_of_its_tensor() -> None:
    work = GraphBuilder()
    x = work.input("x", (3,))
    with pytest.raises(ShapeError, match="expected a gradient of shape"):
        differentiate(work, {x: work.scalar(1.0)}, [x])


def test_views_share_storage_and_life() -> None:
    work = GraphBuilder()
    x = work.input("x", (2, 3))
    a = work.unary(x, "exp")
    view = work.reshape(a, (3, 2))
    b = work.unary(a, "neg")
    c = work.unary(work.reshape(view, (6,)), "abs")
    graph = work.finish([b, c])
    made = {node.attrs.get("name", node.op): node.outputs[0] for node in graph.nodes}
    root, last = view_roots(graph), last_use(graph)
    assert [root[i] for i in range(len(root)) if root[i] != i] == [made["exp"]] * 2
    assert last[made["exp"]] == len(graph.nodes) - 1
    assert scratch_tensors(graph) == [made["exp"], made["neg"], made["abs"]]


def test_a_graph_prints_its_nodes() -> None:
    work = GraphBuilder()
    with work.at("1.0.0"):
        y = work.binary("mul", work.input("x", (2, 3)), work.stored_tensor("w", (3,)))
    assert str(work.finish([y])) == "%0[2×3] = input\n%2[2×3] = binary(%0, w) name=mul @1.0.0\nreturn %2"


def test_a_store_keeps_shape_and_kind() -> None:
    store = NumpyGraphs().store()
    store.write("a", np.zeros((2, 3)))
    store.write("ids", np.arange(3))
    assert store.get("a").dtype == np.float32
    assert store.get("ids").dtype == np.int32
    store.get("a")[...] = 7
    assert not store.get("a").any()
    with pytest.raises(ShapeError, match="buffer 'a' is float32"):
        store.write("a", np.zeros((3, 2)))
    store.drop("a")
    assert list(store.keys()) == ["ids"]
    with pytest.raises(KeyError):
        store.get("a")


def test_programs_check_buffers_and_inputs() -> None:
    work = GraphBuilder()
    y = work.gather_rows(work.stored_tensor("table", (4, 2)), work.input("ids", (3,), "int32"))
    graph, device = work.finish([y]), NumpyGraphs()
    store = device.store()
    with pytest.raises(SpecError, match="no buffer 'table'"):
        device.compile(graph, store)
    store.write("table", np.zeros((4, 2)))
    program = device.compile(graph, store)
    with pytest.raises(ShapeError, match="expected int32"):
        program.run([np.zeros(3)])
    with pytest.raises(ShapeError, match="takes 1 inputs"):
        program.run([])
    assert program.run([np.zeros(3, np.int64)])[0].shape == (3, 2)


def places(sizes: Shape, strides: Shape) -> list[int]:
    return [sum(i * s for i, s in zip(at, strides, strict=True)) for at in itertools.product(*map(range, sizes))]


@given(shapes, st.data())
def test_a_broadcast_nest_visits_what_numpy_does(shape: Shape, data: st.DataObject) -> None:
    operand = tuple(data.draw(st.sampled_from((1, n))) for n in shape)[data.draw(st.integers(0, len(shape) - 1)) :]
    sizes, (out, left, right) = broadcast_layout(shape, shape, operand)
    whole = np.arange(np.prod(shape)).reshape(shape)
    part = np.broadcast_to(np.arange(np.prod(operand)).reshape(operand), shape)
    assert places(sizes, out) == places(sizes, left) == whole.ravel().tolist()
    assert places(sizes, right) == part.ravel().tolist()


def test_nests_are_as_short_as_can_be() -> None:
    assert broadcast_layout((2, 3, 4), (2, 3, 4), (3, 4)) == ((2, 12), ((12, 1), (12, 1), (0, 1)))
    assert broadcast_layout((2, 3, 4), (2, 3, 4), (1,)) == ((24,), ((1,), (1,), (0,)))
    assert broadcast_layout((2, 3, 4, 5), (1, 3, 1, 1)) == ((2, 3, 20), ((60, 20, 1), (0, 1, 0)))
    assert broadcast_layout((1, 1), (1,)) == ((1,), ((1,), (1,)))


@given(shapes, st.data())
def test_a_reduction_nest_sums_what_numpy_does(shape: Shape, data: st.DataObject) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    nest = reduce_layout(shape, axes)
    x = np.arange(np.prod(shape))
    got = x.reshape([n for n, _ in nest]).sum(tuple(i for i, (_, reduced) in enumerate(nest) if reduced))
    assert got.ravel().tolist() == x.reshape(shape).sum(axes).ravel().tolist()
    assert all(a[1] != b[1] for a, b in itertools.pairwise(nest))
