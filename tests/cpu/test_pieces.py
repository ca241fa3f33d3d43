"""Ragged calls on the CPU: a row has the same bits in any company, and a prompt in any pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cpu.networks import encoder, random_params
from tests.cpu.test_batch import NETWORKS, compiled
from volumetric.devices.cpu import CpuDevice
from volumetric.run.call_batch import RowSpan, deal_spans
from volumetric.run.device import OutputRows, RunOptions, SequenceRows
from volumetric.run.lower import lower

FORMATS = [
    ("float32", "auto", "auto"),
    ("float16", "auto", "float16"),
    ("bfloat16", "auto", "int8"),
    ("bfloat16", "bfloat16", "auto"),
    ("bfloat16", "bfloat16", "float16"),
    ("int8:g32", "int8", "auto"),
    ("int8:g32", "float32", "auto"),
    ("int4:g32", "int8", "int8"),
    ("int4:g32", "float32", "float16"),
    ("uint4:g32", "int8", "float32"),
    ("uint4:g32", "float32", "auto"),
]


def whole(executable: Any, prompts: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of all rows of each prompt, which runs alone and in one piece."""
    return [executable.forward(executable.new_state(), prompt, last_only=False) for prompt in prompts]


def agree_in_any_pieces(executable: Any, prompts: list[np.ndarray], rng: np.random.Generator, *, longest: int) -> None:
    """Feed the prompts together, in pieces of random length; every output must have the bits of `whole`."""
    want = whole(executable, prompts)
    states, fed = [executable.new_state() for _ in prompts], [0] * len(prompts)
    while any(at < len(prompt) for at, prompt in zip(fed, prompts, strict=True)):
        pieces: list[SequenceRows] = []
        expected: list[np.ndarray] = []
        for i in rng.permutation(len(prompts)):
            size = min(int(rng.choice([0, 1, 1, 2, 3, 4, 5, 6, 7, 13, longest])), len(prompts[i]) - fed[i])
            if size:
                rows = slice(fed[i], fed[i] + size)
                wanted: OutputRows = rng.choice(["last", "all", "none"])
                pieces.append(SequenceRows(states[i], prompts[i][rows], wanted))
                expected.append({"all": want[i][rows], "last": want[i][rows][-1:], "none": want[i][:0]}[wanted])
                fed[i] += size
        if pieces:
            for got, right in zip(executable.run(pieces), expected, strict=True):
                np.testing.assert_array_equal(got, right)
    assert [state.position for state in states] == fed


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "scheme", "compute", "kv_dtype"),
    [*(("llama", *each) for each in FORMATS), *(("gemma", *each) for each in FORMATS[::5])],
)
def test_bits_depend_on_neither_company_nor_cut(name, scheme, compute, kv_dtype, rng):
    executable = compiled(name, rng, scheme, compute=compute, kv_dtype=kv_dtype)
    prompts = [rng.integers(0, 97, int(n)).astype(np.int32) for n in rng.integers(1, 41, 5)]
    agree_in_any_pieces(executable, prompts, rng, longest=40)


@pytest.mark.thorough
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("threads", [1, 3])
def test_seventeen_sequences_of_different_lengths(name, threads, rng):
    executable = compiled(name, rng, threads=threads)
    prompts = [rng.integers(0, 97, n).astype(np.int32) for n in rng.permutation(np.arange(3, 48, 2))[:17]]
    agree_in_any_pieces(executable, prompts, rng, longest=40)


@pytest.mark.thorough
def test_calls_of_more_rows_than_a_chunk(rng):
    """Pieces are cut where a native call ends; the caches of one grow beyond their first allocation on the way."""
    executable = compiled("llama", rng, "int4:g32", context=700)
    prompts = [rng.integers(0, 97, n).astype(np.int32) for n in (300, 1, 650, 40)]
    want = whole(executable, prompts)
    wanted: tuple[OutputRows, ...] = ("last", "all", "all", "none")
    pieces = [SequenceRows(executable.new_state(), x, want) for x, want in zip(prompts, wanted, strict=True)]
    got = executable.run(pieces)
    for found, right in zip(got, (want[0][-1:], want[1], want[2], want[3][:0]), strict=True):
        np.testing.assert_array_equal(found, right)


def test_pieces_that_see_one_call_alone_stay_whole(rng):
    plan = lower(encoder())
    executable = CpuDevice(threads=2).compile(plan, random_params(plan, rng), RunOptions(context=600))
    prompts = [rng.integers(0, 97, n).astype(np.int32) for n in (3, 520, 1, 21)]
    got = executable.run([SequenceRows(executable.new_state(), x, "all") for x in prompts])
    for found, right in zip(got, whole(executable, prompts), strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("chunked", [True, False])
def test_pieces_are_dealt_out_in_order(chunked):
    sizes = [3, 9, 1, 4, 20, 2]
    dealt = list(deal_spans(sizes, 8, split=chunked))
    rows = [(part.sequence, row) for parts in dealt for part in parts for row in range(part.start, part.stop)]
    assert rows == [(piece, row) for piece, size in enumerate(sizes) for row in range(size)]
    assert all(sum(map(len, parts)) <= 8 or (not chunked and len(parts) == 1) for parts in dealt)
    if not chunked:
        assert all((part.start, part.stop) == (0, sizes[part.sequence]) for parts in dealt for part in parts)
    assert len(RowSpan(0, 2, 5)) == 3


def test_a_loop_takes_a_few_rows_of_every_sequence_at_a_time() -> None:
    dealt = list(deal_spans([3, 1, 2], 4, each=2))
    assert dealt == [[RowSpan(0, 0, 2), RowSpan(1, 0, 1)], [RowSpan(2, 0, 2)], [RowSpan(0, 2, 3)]]
    assert list(deal_spans([2], 1, each=3)) == [[RowSpan(0, 0, 1)], [RowSpan(0, 1, 2)]]
