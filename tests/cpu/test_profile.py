"""Time per step on the CPU: every step is counted, and the state stays where it was."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu.networks import gpt, random_params
from tests.networks import tiny_llama
from volumetric.base.errors import GenerationError
from volumetric.devices.cpu import CpuDevice
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower
from volumetric.run.step_times import WHOLE, StepTime, by_label


def test_labels_add_up_in_order():
    found = by_label([("b", 1.0), ("a", 2.0), ("b", 4.0)])
    assert found == [StepTime(label="b", count=2, seconds=5.0), StepTime(label="a", count=1, seconds=2.0)]


@pytest.mark.parametrize(("rows", "product"), [(1, "vector_product"), (20, "tile_product")])
def test_every_step_is_counted_and_the_state_goes_on(rows, product, rng):
    plan = lower(tiny_llama())
    executable = CpuDevice(threads=2).compile(plan, random_params(plan, rng), RunOptions(context=64))
    ids = np.arange(12, dtype=np.int32)
    state, undisturbed = executable.new_state(), executable.new_state()
    for one in (state, undisturbed):
        executable.forward(one, ids)
    *steps, whole = executable.step_times([state], rows, repeats=2)
    assert (whole.label, whole.count) == (WHOLE, sum(step.count for step in steps))
    assert whole.seconds > 0
    counts = {step.label: step.count for step in steps}
    assert counts[f"{product} 64x32 float32"] == 2  # q, k and v of two blocks
    assert counts["embedding"] == 1
    assert state.position == 12
    want = executable.forward(undisturbed, ids[:3])
    np.testing.assert_array_equal(executable.forward(state, ids[:3]), want)


def test_a_batch_has_one_call(rng):
    plan = lower(tiny_llama())
    executable = CpuDevice(threads=2).compile(plan, random_params(plan, rng), RunOptions(context=64))
    states = [executable.new_state() for _ in range(6)]
    for i, state in enumerate(states):
        executable.forward(state, np.arange(1 + i, dtype=np.int32))
    steps = {step.label: step.count for step in executable.step_times(states, repeats=1)}
    assert steps["tile_product 64x32 float32"] == 2  # as six rows of one sequence
    assert [state.position for state in states] == [1, 2, 3, 4, 5, 6]


def test_a_call_that_does_not_fit_is_refused(rng):
    plan = lower(gpt())
    executable = CpuDevice(threads=1).compile(plan, random_params(plan, rng), RunOptions(context=64))
    state = executable.new_state()
    executable.forward(state, np.zeros(40, np.int32))
    with pytest.raises(GenerationError, match="learned"):
        executable.step_times([state], 9)
    with pytest.raises(GenerationError, match="fit"):
        executable.step_times([state], 30)
