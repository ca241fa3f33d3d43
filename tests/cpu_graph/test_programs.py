"""Programs: what comes in and goes out, what shares memory, when threads meet."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.devices.cpu.graph.build_steps import build_steps
from volumetric.devices.cpu.graph.cpu_program import CpuProgram
from volumetric.devices.cpu.graph.graphs import CpuGraphs
from volumetric.devices.cpu.placement import LARGE, StoragePlacement, barriers
from volumetric.devices.cpu.step_builder import StepBuilder
from volumetric.graph import Graph, GraphBuilder, NumpyGraphs


def compiled(work: GraphBuilder, outputs: list[int], threads: int = 1, **buffers: np.ndarray) -> CpuProgram:
    device = graphs(threads)
    store = device.store()
    for key, value in buffers.items():
        store.write(key, value)
    return device.compile(work.finish(outputs), store)


def placed(graph: Graph) -> tuple[StepBuilder, StoragePlacement]:
    draft = build_steps(graph)
    return draft, StoragePlacement(draft)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("size", [5, LARGE])
def test_results_belong_to_the_caller(size: int) -> None:
    work = GraphBuilder()
    x = work.input("x", (size,))
    program = compiled(work, [work.affine(x, 2.0), x])
    first = program.run([np.ones(size, np.float32)])
    second = program.run([np.full(size, 3, np.float32)])
    np.testing.assert_array_equal(first[0], np.full(size, 2, np.float32))
    np.testing.assert_array_equal(first[1], np.ones(size, np.float32))
    np.testing.assert_array_equal(second[0], np.full(size, 6, np.float32))
    assert all(array.flags.writeable for array in (*first, *second))


@pytest.mark.parametrize("size", [7, LARGE])
def test_inputs_may_be_float64_and_strided_and_stay_as_they_are(size: int) -> None:
    work = GraphBuilder()
    x = work.input("x", (size,))
    program = compiled(work, [work.unary(x, "square")])
    given = np.arange(2.0 * size)[::2] / size
    before = given.copy()
    np.testing.assert_allclose(program.run([given])[0], before**2, rtol=1e-6)
    np.testing.assert_array_equal(given, before)


def test_wrong_inputs_are_refused() -> None:
    work = GraphBuilder()
    table, ids = work.stored_tensor("table", (4, 3)), work.input("ids", (2,), "int32")
    program = compiled(work, [work.gather_rows(table, ids)], table=numbers(4, 3))
    for bad in (np.array([0, 4], np.int32), np.array([-1, 0], np.int32)):
        with pytest.raises(ShapeError, match=r"ids must lie in 0 … 3"):
            program.run([bad])
    with pytest.raises(ShapeError, match="expected int32 of shape"):
        program.run([np.zeros(2, np.float32)])
    with pytest.raises(ShapeError, match="takes 1 inputs, got 2"):
        program.run([np.zeros(2, np.int32)] * 2)
    np.testing.assert_array_equal(program.run([np.array([3, 0], np.int64)])[0], numbers(4, 3)[[3, 0]])


def test_a_missing_buffer_and_one_of_another_shape_are_refused() -> None:
    work = GraphBuilder()
    y = work.affine(work.stored_tensor("w", (3,)), 2.0)
    with pytest.raises(SpecError, match="no buffer 'w'"):
        compiled(work, [y])
    with pytest.raises(ShapeError, match="expected float32 of shape"):
        compiled(work, [y], w=numbers(4))


def test_a_store_keeps_shape_and_address() -> None:
    store = graphs().store()
    store.write("a", np.ones(3))
    address = store.buffers["a"].ctypes.data
    store.write("a", np.full(3, 2.0))
    assert store.buffers["a"].ctypes.data == address
    assert address % 64 == 0
    with pytest.raises(ShapeError, match="buffer 'a' is float32"):
        store.write("a", np.ones(4))
    copy = store.get("a")
    copy[:] = 0
    np.testing.assert_array_equal(store.get("a"), np.full(3, 2, np.float32))
    store.drop("a")
    assert list(store.keys()) == []
    with pytest.raises(KeyError):
        store.get("a")


def test_updates_write_the_store() -> None:
    work = GraphBuilder()
    w, g = work.stored_tensor("w", (70,)), work.input("g", (70,))
    knobs = work.input("knobs", (5,))
    work.emit("update", (w, g, knobs), name="sgd", weight_decay=0.0, in_place=True)
    device = graphs()
    store = device.store()
    store.write("w", np.ones(70))
    program = device.compile(work.finish([]), store)
    gradient = numbers(70)
    program.run([gradient, np.array([0.5, 1, 0, 0, 1], np.float32)])
    np.testing.assert_allclose(store.get("w"), 1 - 0.5 * gradient, rtol=1e-6)
    before = store.get("w")
    program.run([gradient, np.array([0.5, 1, 0, 0, 0], np.float32)])
    np.testing.assert_array_equal(store.get("w"), before)


def test_an_operation_without_a_kernel_is_refused() -> None:
    work = GraphBuilder()
    graph = work.finish([work.affine(work.input("x", (2,)), 2.0)])
    odd = Graph(
        tensors=graph.tensors,
        nodes=tuple(type(n)(op="odd", inputs=n.inputs, outputs=n.outputs, where="1.0.0") for n in graph.nodes),
        inputs=graph.inputs,
        outputs=graph.outputs,
        constants={},
    )
    with pytest.raises(UnsupportedError, match=r"operation 'odd' of 1\.0\.0 has no CPU kernel"):
        graphs().compile(odd, graphs().store())


def test_elementwise_chains_use_one_piece_of_memory_without_meetings() -> None:
    work = GraphBuilder()
    x = y = work.input("x", (100,))
    for _ in range(5):
        y = work.unary(y, "tanh")
    draft, placement = placed(work.finish([y]))
    assert placement.arena == 448
    assert placement.of[x] == placement.of[y]
    assert not any(barriers(draft.steps, placement, draft.sizes))


def test_threads_meet_before_they_read_what_others_wrote() -> None:
    work = GraphBuilder()
    x = work.input("x", (6, 50))
    y = work.unary(x, "exp")
    z = work.binary("div", y, work.reduce(y, "sum", (1,)))
    draft, placement = placed(work.finish([z]))
    assert [step.name for step in draft.steps] == ["unary", "reduce", "binary"]
    assert barriers(draft.steps, placement, draft.sizes) == [True, True, False]


def test_memory_is_used_again() -> None:
    work = GraphBuilder()
    y = work.input("x", (64, 64))
    for _ in range(6):
        y = work.permute(y, (1, 0))
    _, placement = placed(work.finish([y]))
    assert placement.arena <= 3 * 64 * 64 * 4


def test_several_python_threads_may_run_one_program() -> None:
    work = GraphBuilder()
    x = work.input("x", (50, 40))
    program = compiled(work, [work.softmax(work.unary(x, "exp"))], threads=2)
    inputs = [numbers(50, 40) * i for i in range(4)]
    wanted = [program.run([x])[0] for x in inputs]
    wrong: list[int] = []

    def check(i: int) -> None:
        results = [program.run([inputs[i]])[0] for _ in range(50)]
        wrong.extend(i for result in results if not np.array_equal(result, wanted[i]))

    workers = [threading.Thread(target=check, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_busy_machine_does_not_leave_programs_on_one_thread_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    work = GraphBuilder()
    x = work.input("x", (400, 400))
    device = CpuGraphs(2)
    program = device.compile(
        work.finish([work.gemm(work.reshape(x, (1, 400, 400)), work.constant(np.eye(400)[None]))]), device.store()
    )
    seen: list[float] = []
    governor = program._executor.governor
    governor.threads = 1
    monkeypatch.setattr(governor, "record_call", lambda seconds, kind: seen.append(seconds))
    program.run([numbers(400, 400)])
    assert len(seen) == 1


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("moves", [0.0, 1.0])
@pytest.mark.parametrize(
    ("name", "slots", "fields"),
    [
        ("sgd", 0, {}),
        ("momentum", 1, {"momentum": 0.9, "dampening": 0.1, "nesterov": True}),
        ("rmsprop", 3, {"alpha": 0.9, "eps": 1e-6, "centered": True, "momentum": 0.5}),
        ("adamw", 2, {"beta1": 0.8, "beta2": 0.99, "eps": 1e-6}),
    ],
)
def test_a_trial_of_which_only_the_size_matters_writes_nothing(
    name: str, slots: int, fields: dict[str, float], moves: float, threads: int
) -> None:
    work, shape = GraphBuilder(), (3, 9001)
    kept = [work.stored_tensor(key, shape) for key in ("w", "g", *"abc"[:slots])]
    scalars = work.input("scalars", (5,))
    trial = work.update(
        name=name,
        param=kept[0],
        grad=kept[1],
        slots=kept[2:],
        scalars=scalars,
        in_place=False,
        weight_decay=0.1,
        **fields,
    )
    graph = work.finish([work.sumsq([trial[0]])])
    rng = np.random.default_rng(1)
    values = {key: np.abs(rng.standard_normal(shape)).astype(np.float32) + 1 for key in ("w", "g", *"abc"[:slots])}
    knobs = np.array([0.1, 0.5, 0.0, 1.1, moves], np.float32)
    oracle = NumpyGraphs(np.float64)
    store, exact = graphs(threads).store(), oracle.store()
    for key, value in values.items():
        store.write(key, value)
        exact.write(key, value)
    program = graphs(threads).compile(graph, store)
    assert program.scratch_bytes < values["w"].nbytes
    got, want = program.run([knobs]), oracle.compile(graph, exact).run([knobs])
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
    for key, value in values.items():
        np.testing.assert_array_equal(store.get(key), value)


def test_every_step_of_a_program_has_a_time() -> None:
    work = GraphBuilder()
    x = work.input("x", (LARGE // 4, 4))
    program = compiled(work, [work.softmax(work.affine(x, 2.0))], threads=2)
    *steps, whole = program.step_times([numbers(LARGE // 4, 4)], repeats=2)
    assert {step.label: step.count for step in steps} == {"unary": 1, "softmax": 1}
    assert whole.seconds > 0
    assert whole.count == 2


def test_programs_of_one_store_share_scratch() -> None:
    store = graphs().store()
    programs = []
    for count in (70, 9000):
        work = GraphBuilder()
        y = work.permute(work.permute(work.input("x", (count, 2)), (1, 0)), (1, 0))
        programs.append(graphs().compile(work.finish([y]), store))
    for _ in range(2):  # the memory of the second is larger: the first one finds its tensors elsewhere afterwards
        for program, count in zip(programs, (70, 9000), strict=True):
            np.testing.assert_array_equal(program.run([numbers(count, 2)])[0], numbers(count, 2))
    assert store.scratch.nbytes < sum(program.scratch_bytes for program in programs)


@pytest.mark.parametrize("threads", [1, 3])
def test_numbers_too_small_to_be_normal_count_as_0_where_a_graph_lets_them(threads: int) -> None:
    tiny = np.full(4000, 1e-39, np.float32)
    found = []
    for flush in (True, False):
        work = GraphBuilder(flush=flush)
        x = work.input("x", tiny.shape)
        graphs = CpuGraphs(threads, always=True)
        program = graphs.compile(work.finish([work.affine(x, 0.5), work.affine(x, 1e10)]), graphs.store())
        found.append(program.run([tiny]))
        assert (tiny * np.float32(0.5)).all()  # the calling thread computes as before
    assert not np.any(found[0])
    np.testing.assert_array_equal(found[1], [tiny * np.float32(0.5), tiny * np.float32(1e10)])
