"""Laws of the scheduler: who sees what was computed, what is counted and given back, and who suffers from an error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.devices import device
from tests.generate.letters import END, deep_letters, letters
from volumetric.base.errors import GenerationError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.devices.reference_state import ReferenceState
from volumetric.generate import Job, Limits, Model, Scheduler, Ticket
from volumetric.generate.scheduling.prefix_cache import PrefixCache, common_length
from volumetric.layers import LSTM, MultiHeadAttention
from volumetric.network import Params
from volumetric.network.weight_store import WeightStore
from volumetric.run.device import RunOptions

ATTENTION = MultiHeadAttention(embed_dim=8, num_heads=2)


def job(model: Model, prompt: str | list[int], *, salt: str = "", n: int = 1, **rest: Any) -> Job:
    return Job(prompt=model.encode(prompt), params=model.sampling(ignore_eos=True, **rest), salt=salt, n=n)


def finish(scheduler: Scheduler) -> None:
    for _ in range(2000):
        if scheduler.idle:
            return
        scheduler.step()
    raise AssertionError("the scheduler does not come to an end")


@pytest.mark.parametrize("prefix_bytes", [0, 2**20])
def test_what_one_salt_has_computed_another_never_sees(prefix_bytes: int):
    """At any time: of what runs, of what has ended, and of what comes together."""
    model, random = deep_letters(ReferenceDevice(), ATTENTION, context=96), np.random.default_rng(3)
    shared = random.integers(0, 8, 40).tolist()
    scheduler = Scheduler(model, Limits(slots=4, prefix_bytes=prefix_bytes))
    tickets: list[Ticket] = []
    for number in range(24):
        prompt = [*shared[: int(random.integers(20, 40))], *random.integers(0, 8, 3).tolist()]
        tickets.append(scheduler.submit(job(model, prompt, salt="abc"[number % 3], max_tokens=9)))
        for _ in range(int(random.integers(0, 7))):
            scheduler.step()
    finish(scheduler)
    reused = 0
    for ticket in tickets:
        prompt, cached = np.array(ticket.job.prompt), ticket.generations[0].stats.cached_tokens
        own = [one for one in tickets if one.job.salt == ticket.job.salt and one is not ticket]
        texts = [np.array([*one.job.prompt, *one.generations[0].token_ids]) for one in own]
        assert cached <= max(common_length(prompt, text) for text in texts)
        reused += cached > 0
    assert reused > 3
    alone = scheduler.submit(job(model, shared, salt="d", max_tokens=1))
    finish(scheduler)
    assert alone.generations[0].stats.cached_tokens == 0


def test_of_two_salts_that_run_together_neither_waits_for_the_other_nor_copies_it():
    model = deep_letters(ReferenceDevice(), ATTENTION, context=96)
    scheduler = Scheduler(model)
    first = scheduler.submit(job(model, [1, 2, 3] * 10, salt="a", max_tokens=20))
    scheduler.step()
    others = [scheduler.submit(job(model, [1, 2, 3] * 10, salt=salt, max_tokens=2)) for salt in "bba"]
    finish(scheduler)
    assert [one.generations[0].stats.cached_tokens for one in (first, *others)] == [0, 0, 29, 29]


def test_a_long_prompt_ends_however_many_short_ones_come():
    model = letters(context=64)
    scheduler = Scheduler(model, Limits(prompt_rows=4, prefix_bytes=None, queue=None))
    scheduler.submit(job(model, "a", max_tokens=60))
    scheduler.step()
    long = scheduler.submit(job(model, [1, 2] * 10, max_tokens=1))
    for _ in range(5 * (4 + 1)):  # five times four rows, each after at most four calls for others
        scheduler.submit(job(model, [3, 4, 5, 6], max_tokens=1))
        scheduler.step()
    assert long.ended
    scheduler.close()


def test_of_kept_states_that_go_first_which_was_used_longest_ago():
    model = deep_letters(ReferenceDevice(), ATTENTION)
    kept = PrefixCache(8, lambda rows: rows)
    prompts = [np.array([number] * 4, np.int32) for number in range(3)]
    for prompt in prompts[:2]:
        kept.keep(prompt, model.executable.new_state())
    found = kept.find(prompts[0]).entry
    assert found is not None
    kept.use(found)
    kept.keep(prompts[2], model.executable.new_state())
    assert [kept.find(prompt).rows for prompt in prompts] == [4, 0, 4]
    assert (kept.nbytes, len(kept), kept.evictions) == (8, 2, 1)


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_kept_states_take_the_memory_that_is_counted_for_them(name: str):
    """Whatever room they had to go on, and wherever a sequence that began alike was cut off."""
    model = deep_letters(device(name), ATTENTION, context=200)
    scheduler = Scheduler(model, Limits(prefix_bytes=2**20))
    for rows, more in ((20, 1), (20, 14), (40, 30), (140, 3), (3, 40), (33, 100)):
        scheduler.submit(job(model, [rows % 7, 1, 2] * (rows // 3), max_tokens=more))
        finish(scheduler)
    prefixes = scheduler._slots._prefixes
    assert prefixes is not None
    assert len(prefixes) == scheduler.stats.prefix_entries > 3
    taken = sum(_bytes_of(entry.state) for entry in prefixes._entries.values())
    assert scheduler.stats.prefix_bytes * 0.9 <= taken <= scheduler.stats.prefix_bytes


def _bytes_of(state: Any) -> int:
    """Bytes that are allocated for a state."""
    if isinstance(state, ReferenceState):
        return sum((value if value.base is None else value.base).nbytes for value in state.values.values())
    return state.memory.nbytes


@pytest.mark.parametrize("n", [1, 3])
def test_a_prompt_counts_once_whatever_number_of_texts_it_has(n: int):
    model = deep_letters(ReferenceDevice(), ATTENTION, context=96)
    scheduler = Scheduler(model)
    for _ in range(2):
        scheduler.submit(job(model, [1, 2, 3] * 10, n=n, max_tokens=3))
        finish(scheduler)
    stats = scheduler.stats
    assert (stats.prompt_tokens, stats.cached_tokens) == (60, 29)
    assert stats.generated_tokens == 2 * 3 * n
    assert stats.cached_tokens <= stats.prompt_tokens


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("inner", [ATTENTION, LSTM(input_size=8, hidden_size=8)], ids=["attention", "lstm"])
def test_an_error_of_one_sequence_leaves_the_others_where_they_were(name: str, inner: Any):
    """One token leads to NaN: a sequence that comes to it fails, in the middle of a loop that the device keeps."""
    model = deep_letters(device(name), ATTENTION, inner, context=96)
    texts = {first: model.generate([first] * 3, max_tokens=30, ignore_eos=True).token_ids for first in range(END)}
    choices = [
        (token, one, other)
        for one in texts
        for token in texts[one][2:20]
        for other in texts
        if token not in (one, other) and token not in texts[other]
    ]
    # A text that hardly changes would be the same behind a token that is fed twice.
    bad, guilty, innocent = max(choices, key=lambda choice: len(set(texts[choice[2]])))
    table = model.params["0.0.0.0/weight"].values().copy()
    table[bad] = np.nan
    params = Params({**model.params, "0.0.0.0/weight": WeightStore.from_array(table)})
    broken = Model(replace(model.loaded, params=params), device(name), RunOptions(context=96))
    for order in ((guilty, innocent), (innocent, guilty, innocent)):
        scheduler = Scheduler(broken, Limits(prefix_bytes=None))
        tickets = [scheduler.submit(job(broken, [first] * 3, max_tokens=30)) for first in order]
        finish(scheduler)
        for first, ticket in zip(order, tickets, strict=True):
            if first == guilty:
                assert isinstance(ticket.error, GenerationError)
            else:
                assert ticket.error is None
                assert ticket.generations[0].token_ids == texts[innocent]
