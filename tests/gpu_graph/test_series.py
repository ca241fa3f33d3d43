"""Several runs in one submission: the bits of single runs, whatever the number, the inputs and the executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.devices import command_buffers, narrowed_graphs
from tests.gpu.plain_executor import PlainExecutor
from volumetric.base.errors import ShapeError
from volumetric.devices.gpu.graph import GpuGraphs
from volumetric.devices.gpu.graph.gpu_program import GpuProgram
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.graph import Graph, GraphBuilder, NumpyGraphs
from volumetric.graph.run_series import Carry, PickedRows, run_one_by_one, run_series

CARRY = Carry(0, 3)
TABLE = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
LABELS = np.arange(7, dtype=np.int32)[::-1].copy()


def accumulating() -> Graph:
    """A persistent sum of rows, scaled by a knob; the output of one run is an input of the next."""
    work = GraphBuilder()
    x, labels = work.input("x", (3, 5)), work.input("labels", (3,), "int32")
    knob, before = work.input("knob", (2,)), work.input("before", (5,))
    looked_up = work.gather_rows(work.stored_tensor("words", (7, 2)), labels)
    total = work.add(work.stored_tensor("sum", (5,)), work.reshape(work.reduce(x, "sum", (0,)), (5,)))
    work.assign("sum", total)
    scaled = work.binary("mul", total, work.split(knob, [1, 1], 0)[1])
    return work.finish([work.add(work.binary("mul", scaled, work.scalar(0.5)), before), looked_up])


def runs(count: int, *, picked: bool) -> list[list[Any]]:
    draw = np.random.default_rng(count)
    inputs: list[list[Any]] = []
    for number in range(count):
        ids = draw.integers(0, 7, 3).astype(np.int32)
        rows = [PickedRows(TABLE, ids), PickedRows(LABELS, ids)] if picked else [TABLE[ids], LABELS[ids]]
        inputs.append([*rows, np.array([9, number], np.float32), np.full(5, number, np.float32)])
    return inputs


def opened(graphs: Any) -> tuple[Any, Any]:
    store = graphs.store()
    store.write("sum", np.zeros(5, np.float32))
    store.write("words", np.arange(14, dtype=np.float32).reshape(7, 2))
    return graphs.compile(accumulating(), store), store


@pytest.mark.parametrize("executor", [OpenGpu.new_executor, PlainExecutor])
@pytest.mark.parametrize("picked", [False, True])
def test_a_series_has_the_bits_of_single_runs(picked: bool, executor: Callable[[Any], Any]) -> None:
    context = narrowed_graphs("native").context
    graphs = GpuGraphs(context, executor(context))
    (together, store), (alone, other), (known, _) = opened(graphs), opened(graphs), opened(NumpyGraphs())
    for count in (1, 5, 2, 5, 8):
        inputs = runs(count, picked=picked)
        outputs = run_series(together, inputs, CARRY)
        want, reference = run_one_by_one(alone, inputs, CARRY), run_one_by_one(known, inputs, CARRY)
        for got, one, plain in zip(outputs, want, reference, strict=True):
            for a, b, c in zip(got, one, plain, strict=True):
                np.testing.assert_array_equal(a, b)
                np.testing.assert_allclose(a, c, rtol=1e-5)
        np.testing.assert_array_equal(store.get("sum"), other.get("sum"))
    used, own = context.allocated, together.scratch_bytes
    together.close()
    assert context.allocated == used - own


def test_more_runs_than_fit_are_several_submissions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volumetric.devices.gpu.graph.gpu_series.MOST_RUNS", 4)
    (together, store), (alone, other) = opened(narrowed_graphs("native")), opened(narrowed_graphs("native"))
    inputs = runs(11, picked=True)
    outputs, want = run_series(together, inputs, CARRY), run_one_by_one(alone, inputs, CARRY)
    np.testing.assert_array_equal([one[0] for one in outputs], [one[0] for one in want])
    np.testing.assert_array_equal(store.get("sum"), other.get("sum"))


def test_resident_rows_are_those_of_the_array_passed() -> None:
    program, store = opened(narrowed_graphs("native"))
    for factor in (1, 2, 1):
        store.write("sum", np.zeros(5, np.float32))
        table = factor * TABLE
        inputs = [[PickedRows(table, one[0].ids), *one[1:]] for one in runs(3, picked=True)]
        outputs = run_series(program, inputs)
        store.write("sum", np.zeros(5, np.float32))
        np.testing.assert_array_equal(outputs[2][0], run_one_by_one(program, inputs)[2][0])


def test_a_series_checks_every_input() -> None:
    program, store = opened(narrowed_graphs("native"))
    good = runs(2, picked=True)
    for wrong in (
        PickedRows(TABLE, np.array([0, 7, 1], np.int32)),
        PickedRows(TABLE, np.array([0, 1], np.int32)),
        PickedRows(TABLE[:, :4], np.array([0, 1, 2], np.int32)),
        PickedRows(TABLE.copy(), np.array([0, 1, 2], np.int32)),
        TABLE[:3],
    ):
        with pytest.raises(ShapeError):
            run_series(program, [good[0], [wrong, *good[1][1:]]])
    assert not store.get("sum").any()  # nothing has run


def test_a_result_that_is_an_input_or_a_stored_tensor_comes_from_single_runs() -> None:
    work = GraphBuilder()
    x = work.input("x", (3,))
    stored = work.stored_tensor("w", (3,))
    graphs = narrowed_graphs("native")
    store = graphs.store()
    store.write("w", np.ones(3, np.float32))
    program = graphs.compile(work.finish([x, stored, work.unary(x, "neg")]), store)
    outputs = run_series(program, [[np.full(3, i, np.float32)] for i in range(3)])
    assert [[value.tolist()[0] for value in one] for one in outputs] == [[0, 1, 0], [1, 1, -1], [2, 1, -2]]


def test_no_commands_stay_behind() -> None:
    program, _ = opened(narrowed_graphs("native"))
    before = command_buffers()
    for count in (4, 3, 4):
        run_series(program, runs(count, picked=False))
    assert isinstance(program, GpuProgram)
    program.close()
    assert command_buffers() == before
