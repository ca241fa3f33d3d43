"""How many rows of prompts a call takes, by what its device has been seen to cost."""

from __future__ import annotations

import pytest

from tests.generate.letters import letters
from tests.generate.test_scheduler import job
from volumetric.generate import Limits, Scheduler
from volumetric.generate.scheduling.prefill_budget import PrefillBudget


def test_prompts_take_as_many_rows_as_their_time_allows():
    pace = PrefillBudget(0.08)
    assert (pace.rows(), pace.alone()) == (64, 128)
    for _ in range(30):
        pace.count(128, 0, 0.128)  # a millisecond each
    assert (pace.rows(), pace.alone()) == (80, 496)
    for _ in range(30):
        pace.count(128, 0, 12.8)  # a large model
    assert (pace.rows(), pace.alone()) == (16, 64)
    for _ in range(30):
        pace.count(128, 0, 0.0128)
        pace.count(3, 0, 1.0)  # the cost of a call, not of its rows
    assert (pace.rows(), pace.alone()) == (512, 512)


def test_what_decoding_costs_anyway_is_no_cost_of_prompts():
    """Calls of 20 ms without prompts, and a quarter of a millisecond for each row more: few rows do not look dear."""
    pace = PrefillBudget(0.08)
    for _ in range(30):
        pace.decoded(0.02)
        pace.count(16, 15, 0.02 + 16 * 0.00025)
    assert pace.rows() == 240
    for _ in range(30):
        pace.decoded(0.1)  # alone longer than a call should be: prompts have half of that beside it
        pace.count(16, 15, 0.1 + 16 * 0.001)
    assert pace.rows() == 32


def test_more_prompts_share_a_call_where_its_rows_cost_less_than_the_call():
    pace = PrefillBudget(0.08)
    assert pace.enough() == 128
    for _ in range(30):
        pace.decoded(0.02)
        pace.count(64, 15, 0.02 + 64 * 0.0005)
    assert pace.enough() == 64  # forty rows cost what a call costs, and fewer than this are little work
    for _ in range(30):
        pace.count(64, 0, 64 * 0.0001)
    assert 190 <= pace.enough() <= 200
    for _ in range(30):
        pace.count(64, 0, 64 * 0.00001)
    assert pace.enough() == 512


def test_beside_sequences_that_decode_a_call_takes_a_few_prompts_and_takes_them_whole(monkeypatch: pytest.MonkeyPatch):
    """Nothing known of times: 64 rows a call beside others, and 128 are enough."""
    monkeypatch.setattr(PrefillBudget, "count", lambda *_: None)
    scheduler = Scheduler(model := letters(context=200), Limits(prefix_bytes=None))
    scheduler.submit(job(model, "a", max_tokens=20, ignore_eos=True))
    scheduler.step()
    later = [scheduler.submit(job(model, "ab" * 20, max_tokens=1)) for _ in range(2)]
    long = scheduler.submit(job(model, "ab" * 50, max_tokens=1))
    order = [[event.ticket for event in scheduler.step() if event.ticket in (*later, long)] for _ in range(4)]
    assert order == [[later[0]], [later[1]], [], [long]]
    scheduler.close()


def test_of_prompts_that_nobody_waits_beside_the_first_ones_are_computed_first():
    """One call with all of them would give its first token to each of them only when it ends."""
    scheduler = Scheduler(model := letters(context=64), Limits(prompt_rows=512, prefix_bytes=None))
    for _ in range(6):
        scheduler.submit(job(model, "abcdabcd" * 7, max_tokens=2))
    assert [len(scheduler.step()) for _ in range(2)] == [3, 6]
    scheduler.close()
