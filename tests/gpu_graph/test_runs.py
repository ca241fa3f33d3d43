"""Runs of programs: encoded ahead, inputs in one write, errors where they happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.devices import command_buffers, narrowed_graphs
from tests.gpu.plain_executor import PlainExecutor
from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.gpu_commands import CopyCommand
from volumetric.devices.gpu.graph import GpuGraphs
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.graph import GraphBuilder


@pytest.mark.parametrize("executor", [OpenGpu.new_executor, PlainExecutor])
def test_a_run_encoded_ahead_sees_what_was_written_meanwhile(executor: Callable[[Any], Any]) -> None:
    context = narrowed_graphs("native").context
    graphs = GpuGraphs(context, executor(context))
    store = graphs.store()
    work = GraphBuilder()
    x, ids = work.input("x", (3,)), work.input("ids", (2,), "int32")
    y = work.binary("add", x, work.stored_tensor("w", (3,)))
    store.write("w", np.zeros(3, np.float32))
    program = graphs.compile(work.finish([y, work.gather_rows(work.reshape(y, (3, 1)), ids), x]), store)
    for step in range(3):
        store.write("w", np.full(3, step, np.float32))
        given = np.arange(3, dtype=np.float32) + 10 * step
        program.submit([given + 1, np.array([1, 1])])  # overtakes what was encoded ahead
        found, rows, same = program.run([given, np.array([2, step])])
        np.testing.assert_array_equal(found, given + step)
        np.testing.assert_array_equal(rows.ravel(), [given[2] + step, given[step] + step])
        np.testing.assert_array_equal(same, given)
        found[:] = np.nan  # results are the caller's
    used, own = context.allocated, program.scratch_bytes
    program.close()
    assert context.allocated == used - own
    store.close()


def test_a_wrong_command_is_an_error_and_the_next_one_runs() -> None:
    context = narrowed_graphs("native").context
    executor = context.new_executor()
    small, large = context.buffer(16, "small"), context.buffer(64, "large")
    with pytest.raises(DeviceError, match="while encoding commands"):
        executor.submit([CopyCommand(large, 0, small, 0, 64)])
    executor.submit([CopyCommand(large, 0, small, 0, 16)])
    executor.submit([])
    for buffer in (small, large):
        context.free(buffer)


def test_nothing_that_was_recorded_ahead_stays_behind() -> None:
    work = GraphBuilder()
    graph = work.finish([work.unary(work.input("x", (1, 5)), "relu")])
    graphs = narrowed_graphs("native")
    before = command_buffers()
    for _ in range(3):
        program = graphs.compile(graph, graphs.store())
        for _ in range(2):
            program.run([np.ones((1, 5), np.float32)])
        program.close()
    assert command_buffers() == before
