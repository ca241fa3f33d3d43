"""Programs and stores: what persists, what is shared, what is refused; and the cuts made for other GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import narrowed, narrowed_graphs
from tests.gpu.plain_executor import PlainExecutor
from tests.gpu_graph.test_products import LARGE
from tests.graph.agreement import agree
from tests.graph.op_cases import OP_CASES, OPEN
from tests.graph.op_cases.case import case_graph, case_outputs, normal
from volumetric.base.errors import DeviceError, ShapeError, SpecError, UnsupportedError
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.graph import GpuGraphs
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweringRequest
from volumetric.devices.gpu.kernels.graph.kernel_table import LOWERERS, lower
from volumetric.graph import GraphBuilder, NumpyGraphs
from volumetric.graph.operations import OPS
from volumetric.graph.operations.weighted_rows import weigh_rows


def test_every_operation_has_a_kernel_or_needs_none() -> None:
    own = {"turn_taps", "update_many", "update_squares", "gemm_of_parts", "formula", "reduce_formula", "sum_listed"}
    none = {"reshape", "scan"} | {name for name, op in OPS.items() if op.written_out is not None}
    assert set(LOWERERS) - own - none == set(OPS) - OPEN - none


def test_an_update_works_in_place_run_after_run() -> None:
    work = GraphBuilder()
    x = work.input("x", (1, 3, 5))
    w = work.stored_tensor("w", (2, 5))
    m, v = work.stored_tensor("w.mean", (2, 5)), work.stored_tensor("w.square", (2, 5))
    scalars = work.input("scalars", (5,))
    y = work.gemm(x, work.reshape(w, (1, 2, 5)), trans_b=True)
    grad = work.reshape(work.gemm(y, x, trans_a=True), (2, 5))
    attrs = {"name": "adamw", "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "in_place": True}
    work.emit("update", (w, grad, m, v, scalars), **attrs)
    graph = work.finish([y])
    rng = np.random.default_rng(0)
    start = rng.standard_normal((2, 5)).astype(np.float32)
    graphs, oracle = narrowed_graphs("native"), NumpyGraphs(np.float64)
    store, expected = graphs.store(), oracle.store()
    for key in ("w", "w.mean", "w.square"):
        value = start if key == "w" else np.zeros_like(start)
        store.write(key, value)
        expected.write(key, value)
    program, reference = graphs.compile(graph, store), oracle.compile(graph, expected)
    for step in range(1, 4):
        inputs = [
            rng.standard_normal((1, 3, 5)).astype(np.float32),
            np.array([0.1, 1, 1 / (1 - 0.9**step), 1 / np.sqrt(1 - 0.99**step), 1], np.float32),
        ]
        agree(program.run(inputs)[0], reference.run(inputs)[0].astype(np.float32), f"step {step}")
    for key in ("w", "w.mean", "w.square"):
        agree(store.get(key), expected.get(key).astype(np.float32), key)


@pytest.mark.parametrize("apply", [0.0, 1.0])
def test_an_assignment_may_depend_on_a_number(apply: float) -> None:
    graphs = narrowed_graphs("native")
    work = GraphBuilder()
    x, on = work.input("x", (2, 3)), work.input("apply", (1,))
    work.emit("assign", (x, on), key="held")
    graph = work.finish([])
    store = graphs.store()
    store.write("held", np.zeros((2, 3), np.float32))
    program = graphs.compile(graph, store)
    assert program.run([np.ones((2, 3), np.float32), np.array([apply], np.float32)]) == []
    np.testing.assert_array_equal(store.get("held"), np.full((2, 3), apply))


def test_scratch_is_shared_but_never_while_it_is_needed() -> None:
    work = GraphBuilder()
    x = work.input("x", (64, 33))
    y, terms = x, []
    for i in range(12):
        y = work.unary(work.affine(y, 0.9, 0.1), "tanh")
        if i % 3 == 0:
            terms.append(y)
    graph = work.finish([work.add(*terms, y), work.reshape(y, (33, 64))])
    graphs = narrowed_graphs("native")
    program = graphs.compile(graph, graphs.store())
    value = normal(64, 33)
    reference = NumpyGraphs(np.float64)
    expected = reference.compile(graph, reference.store()).run([value])
    first, second = program.run([value]), program.run([value])
    for got, again, want in zip(first, second, expected, strict=True):
        agree(got, want.astype(np.float32), "output")
        np.testing.assert_array_equal(got, again)
    assert program.scratch_bytes < 12 * value.nbytes


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        "gemm-layer",
        "gemm-tiles",
        "gemm-row",
        "gemm-head-gradient",
        "gemm-both-transposed",
        "unary-silu-many",
        "binary-sub-four",
        "move-permute-two",
        "move-permute-heads",
        "move-concat-many",
        "move-sum-all",
        "move-max-rows",
        "move-mean-four",
        "rows-softmax-odd",
        "rows-softmax-long",
        "rows-sparsemax-plain",
        "rows-keep-plain",
        "rows-scatter",
        "norm-layer-3-33x65",
        "norm-param-layer-3-33x65",
        "unfold-2d-everything",
        "fold-2d-everything",
        "lstm-17-3-33",
        "grad-gru-17-3-33",
        "loss-classes-many",
        "loss-bce",
        "adamw-later",
        "sumsq",
        "fake-int4:g32",
    ],
)
def test_folded_grids_without_subgroups_change_nothing(name: str, folded: GpuGraphs) -> None:
    case = OP_CASES[name]
    program = folded.compile(case_graph(case), folded.store())
    for i, (got, want) in enumerate(zip(program.run(case.inputs), case_outputs(case, np.float64), strict=True)):
        agree(got, want.astype(np.float32), f"output {i}")


@pytest.mark.parametrize("way", ["", "grad-"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh"])
def test_recurrent_dot_products_may_be_shared(way: str, cell: str) -> None:
    case = OP_CASES[f"{way}{cell}-17-3-33"]
    graphs = narrowed_graphs(LARGE)
    program = graphs.compile(case_graph(case), graphs.store())
    for got, want in zip(program.run(case.inputs), case_outputs(case, np.float64), strict=True):
        agree(got, want.astype(np.float32), cell)


@pytest.mark.parametrize("name", [name for name, case in OP_CASES.items() if case.op == "update"])
def test_a_trial_update_gives_the_new_parameter_alone(name: str) -> None:
    case = OP_CASES[name]
    work = GraphBuilder()
    inputs = [work.input("x", x.shape) for x in case.inputs]
    graph = work.finish(work.emit("update", inputs, **case.attrs)[:1])
    graphs = narrowed_graphs("native")
    program = graphs.compile(graph, graphs.store())
    assert len(program.calls) == 1
    agree(program.run(case.inputs)[0], case_outputs(case, np.float64)[0].astype(np.float32), name)


@pytest.mark.parametrize("name", ["adamw-later", "rmsprop-all-later", "sgd-first", "update-not"])
def test_a_trial_of_which_only_the_size_matters_writes_nothing(name: str) -> None:
    case = OP_CASES[name]
    repeated = [np.tile(x, (200,) + (1,) * (x.ndim - 1)) if x.shape != (5,) else x for x in case.inputs]
    for inputs, launches in ((list(case.inputs), 1), (repeated, 2)):
        work = GraphBuilder()
        at = [work.input("x", x.shape) for x in inputs]
        graph = work.finish([work.sumsq([work.emit("update", at, **case.attrs)[0]])])
        graphs, reference = narrowed_graphs(LARGE), NumpyGraphs(np.float64)
        program = graphs.compile(graph, graphs.store())
        assert len(program.calls) == (launches if inputs[0].size > 4096 else 1)
        assert program.calls[0].name == "graph/squares_of_many"
        [expected] = reference.compile(graph, reference.store()).run(inputs)
        agree(program.run(inputs)[0], expected.astype(np.float32), name)


def test_the_portable_executor_gives_the_same_bits() -> None:
    fast = narrowed_graphs("native")
    plain = GpuGraphs(fast.context, PlainExecutor(narrowed("native").context))
    case = OP_CASES["gemm-layer"]
    first, second = (device.compile(case_graph(case), device.store()).run(case.inputs)[0] for device in (fast, plain))
    np.testing.assert_array_equal(first, second)


def test_programs_share_pipelines() -> None:
    graphs = narrowed_graphs("native")
    made = []
    for width in (5, 6):
        work = GraphBuilder()
        graph = work.finish([work.unary(work.input("x", (3, width)), "silu")])
        made.append(graphs.compile(graph, graphs.store()).calls[0].pipeline)
    assert made[0] is made[1]


def test_a_store_keeps_shape_and_type() -> None:
    store = narrowed_graphs("native").store()
    store.write("a", np.arange(6, dtype=np.int64).reshape(2, 3))
    assert store.get("a").dtype == np.int32
    store.write("none", np.zeros((0, 3), np.float32))
    assert store.get("none").shape == (0, 3)
    with pytest.raises(ShapeError, match=r"'a' is int32 \[2, 3\], got float32 \[2, 3\]"):
        store.write("a", np.zeros((2, 3), np.float32))
    assert list(store.keys()) == ["a", "none"]
    store.drop("a")
    with pytest.raises(KeyError):
        store.get("a")


def test_what_does_not_fit_is_refused() -> None:
    graphs = narrowed_graphs("native")
    work = GraphBuilder()
    ids = work.input("ids", (3,), "int32")
    graph = work.finish([work.gather_rows(work.stored_tensor("table", (4, 2)), ids)])
    store = graphs.store()
    with pytest.raises(SpecError, match="no buffer 'table'"):
        graphs.compile(graph, store)
    store.write("table", np.zeros((4, 3), np.float32))
    with pytest.raises(ShapeError, match="table: the graph has"):
        graphs.compile(graph, store)
    store.drop("table")
    store.write("table", np.zeros((4, 2), np.float32))
    program = graphs.compile(graph, store)
    with pytest.raises(ShapeError, match="id 4 is outside of 0 … 3"):
        program.run([np.array([0, 4, 1])])
    with pytest.raises(ShapeError, match="expected int32"):
        program.run([np.zeros(3, np.float32)])
    with pytest.raises(ShapeError, match="takes 1 inputs, got 0"):
        program.run([])
    work = GraphBuilder()
    constant = work.constant(np.array([1, 5]), "places")
    graph = work.finish([work.gather_rows(work.stored_tensor("table", (4, 2)), constant)])
    with pytest.raises(ShapeError, match="places: id 5 is outside of 0 … 3"):
        graphs.compile(graph, store)


def test_computed_ids_that_are_out_of_range_touch_nothing_else() -> None:
    """No input shows them before the run: they read the last row, and add to none."""
    graphs = narrowed_graphs("native")
    work = GraphBuilder()
    parts = [work.input(name, (2,), "int32") for name in ("left", "right")]
    ids = work.concat(parts, 0)
    table, near = (work.stored_tensor(name, (4, 3)) for name in ("table", "near"))
    weights = work.constant(np.full((4, 1), 0.5, np.float32), "weights")
    read = work.gather_rows(table, ids)
    weighed = weigh_rows(work, near, table, work.reshape(ids, (4, 1)), weights)
    summed = work.scatter_rows(read, ids, 4)
    graph = work.finish([read, weighed, summed])
    store = graphs.store()
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    store.write("table", rows)
    store.write("near", 100 + rows)
    values = [np.array([1, 900_000_000], np.int32), np.array([-1, 2], np.int32)]
    read, weighed, summed = graphs.compile(graph, store).run(values)
    np.testing.assert_array_equal(read, rows[[1, 3, 3, 2]])
    np.testing.assert_array_equal(weighed, 0.5 * np.stack([100 + rows[1], rows[3], rows[3], 100 + rows[2]]))
    np.testing.assert_array_equal(summed, np.stack([0 * rows[0], rows[1], rows[2], 0 * rows[3]]))


def test_a_tensor_beyond_a_binding_is_refused() -> None:
    graphs = GpuGraphs(GpuDevice(narrow={"max_binding": 1 << 12}).context)
    work = GraphBuilder()
    graph = work.finish([work.unary(work.input("x", (1025,)), "exp")])
    with pytest.raises(DeviceError, match="binds at most 4 KiB"):
        graphs.compile(graph, graphs.store())


def test_an_unknown_operation_and_a_hidden_size_beyond_memory_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="odd: the GPU has no kernel"):
        lower(LoweringRequest(op="odd", inputs=(), outputs=((1,),)))
    size = 5000
    attrs = {"cell": "rnn_tanh", "bias": False}
    shapes = ((1, 1, size), (size, size), (1, size))
    with pytest.raises(UnsupportedError, match="hidden size of 5000"):
        lower(LoweringRequest(op="recurrent", inputs=shapes, outputs=((1, 1, size),), attrs=attrs))
