"""Several sequences decoded together on the CPU: each row must have the very bits that it has alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cpu.networks import encoder, gemma, gpt, joins, random_params
from tests.networks import tiny_llama
from tests.pieces import one_row_each
from volumetric.base.errors import GenerationError
from volumetric.devices.cpu import CpuDevice
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower

pytestmark = pytest.mark.thorough

NETWORKS = {"llama": tiny_llama, "gpt": gpt, "gemma": gemma, "joins": joins}


def compiled(name, rng, scheme="float32", *, threads=2, device=None, context=64, **options):
    plan = lower(NETWORKS[name]())
    params = random_params(plan, rng, scheme)
    device = device or CpuDevice(threads=threads)
    return device.compile(plan, params, RunOptions(context=context, **options))


def fed(executable: Any, prompts: list[np.ndarray]) -> list[Any]:
    states = [executable.new_state() for _ in prompts]
    for state, prompt in zip(states, prompts, strict=True):
        if len(prompt):
            executable.forward(state, prompt)
    return states


def ragged(count, rng, *, longest=30):
    return [rng.integers(0, 97, int(n)).astype(np.int32) for n in rng.integers(0, longest, count)]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("count", [1, 3, 17])
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_have_the_bits_of_sequences_run_alone(name, count, threads, rng):
    executable = compiled(name, rng, threads=threads)
    prompts = ragged(count, rng)
    together, alone = fed(executable, prompts), fed(executable, prompts)
    for _ in range(4):
        tokens = rng.integers(0, 97, count).astype(np.int32)
        got = one_row_each(executable, together, tokens)
        want = [executable.forward(state, tokens[i : i + 1]) for i, state in enumerate(alone)]
        np.testing.assert_array_equal(got, np.concatenate(want))
    assert [state.position for state in together] == [state.position for state in alone]


@pytest.mark.parametrize(
    ("scheme", "compute", "kv_dtype"),
    [
        ("float16", "auto", "float16"),
        ("bfloat16", "auto", "int8"),
        ("int8:g32", "int8", "float16"),
        ("int8:g32", "float32", "float32"),
        ("int4:g32", "int8", "int8"),
        ("uint4:g32", "int8", "float16"),
        ("uint4:g32", "float32", "float32"),
    ],
)
def test_every_format_gives_the_same_bits(scheme, compute, kv_dtype, rng):
    executable = compiled("llama", rng, scheme, compute=compute, kv_dtype=kv_dtype)
    prompts = ragged(19, rng)
    together, alone = fed(executable, prompts), fed(executable, prompts)
    tokens = rng.integers(0, 97, 19).astype(np.int32)
    want = [executable.forward(state, tokens[i : i + 1]) for i, state in enumerate(alone)]
    for some in (slice(0, 6), slice(6, 19)):
        got = one_row_each(executable, together[some], tokens[some])
        np.testing.assert_array_equal(got, np.concatenate(want[some]))


def test_sequences_join_and_leave(rng):
    executable = compiled("gemma", rng)
    prompts = ragged(5, rng)
    together, alone = fed(executable, prompts), fed(executable, prompts)
    for members in ([0, 1], [0, 1, 2, 3, 4], [4, 2], [1, 3, 0, 4, 2], [3]):
        tokens = rng.integers(0, 97, len(members)).astype(np.int32)
        got = one_row_each(executable, [together[i] for i in members], tokens)
        for row, i in enumerate(members):
            np.testing.assert_array_equal(got[row], executable.forward(alone[i], tokens[row : row + 1])[0])


def test_a_batch_agrees_with_the_reference(rng):
    seed = rng.integers(1 << 30)
    prompts = ragged(7, rng)
    tokens = rng.integers(0, 97, 7).astype(np.int32)
    found = []
    for device in (CpuDevice(threads=2), ReferenceDevice()):
        executable = compiled("gemma", np.random.default_rng(seed), device=device)
        found.append(one_row_each(executable, fed(executable, prompts), tokens))
    assert np.abs(found[0] - found[1]).max() < 1e-5 * np.abs(found[1]).max()


def test_caches_grow_one_by_one(rng):
    """The first allocation holds 256 tokens: one sequence outgrows it in the middle of a batch."""
    executable = compiled("llama", rng, context=600)
    prompts = [rng.integers(0, 97, n).astype(np.int32) for n in (254, 3, 255)]
    together, alone = fed(executable, prompts), fed(executable, prompts)
    for _ in range(4):
        tokens = rng.integers(0, 97, 3).astype(np.int32)
        got = one_row_each(executable, together, tokens)
        want = [executable.forward(state, tokens[i : i + 1]) for i, state in enumerate(alone)]
        np.testing.assert_array_equal(got, np.concatenate(want))


def test_what_cannot_be_a_batch_changes_no_state(rng):
    executable = compiled("gpt", rng)
    full, other = fed(executable, [rng.integers(0, 97, 48).astype(np.int32), np.zeros(1, np.int32)])
    with pytest.raises(GenerationError, match="learned"):
        one_row_each(executable, [other, full], np.zeros(2, np.int32))
    with pytest.raises(GenerationError, match="twice"):
        one_row_each(executable, [other, other], np.zeros(2, np.int32))
    with pytest.raises(GenerationError, match="vocabulary"):
        one_row_each(executable, [other, executable.new_state()], np.array([3, 97], np.int32))
    assert (full.position, other.position) == (48, 1)


def test_an_encoder_takes_its_rows_one_by_one(rng):
    plan = lower(encoder())
    executable = CpuDevice(threads=2).compile(plan, random_params(plan, rng), RunOptions(context=8))
    tokens = np.array([4, 9], np.int32)
    got = one_row_each(executable, [executable.new_state(), executable.new_state()], tokens)
    want = [executable.forward(executable.new_state(), tokens[i : i + 1]) for i in range(2)]
    np.testing.assert_array_equal(got, np.concatenate(want))
