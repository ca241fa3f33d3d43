"""A stream's tokens are the same alone and in company, with and without kept prefixes, greedy and seeded."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import volumetric
from tests.generate.guesses import Guesses
from tests.generate.letters import deep_letters, recurrent_letters
from volumetric.devices.cpu import CpuDevice
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Job, JobEvent, Limits, Model, Scheduler, Ticket
from volumetric.generate.scheduling import prefill_budget
from volumetric.layers import GRU, LayerSpec, MultiHeadAttention
from volumetric.run.device import Device

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
SPARE: dict[str, Any] = {"queue": None, "queue_tokens": None, "queue_seconds": None}


def prompts_of(random: np.random.Generator, vocabulary: int, count: int, longest: int) -> list[list[int]]:
    """Prompts that begin alike here and there, as those behind a system prompt, and as turns of a conversation do."""
    shared = random.integers(1, vocabulary, (3, longest)).tolist()
    found: list[list[int]] = []
    for _ in range(count):
        kept = int(random.integers(0, longest))
        own = random.integers(1, vocabulary, int(random.integers(1, longest - kept + 1))).tolist()
        found.append(shared[int(random.integers(0, 3))][:kept] + own)
    return found


def params_of(random: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Greedy and seeded, with penalties and logprobs now and then."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 1.2},
        {"temperature": 0.9, "top_p": 0.9, "repetition_penalty": 1.2},
        {"temperature": 1.5, "top_k": 9, "logprobs": 2},
    ]
    return [
        kinds[int(random.integers(0, 4))]
        | {"seed": int(random.integers(0, 99)), "max_tokens": int(random.integers(1, 12)), "ignore_eos": True}
        for _ in range(count)
    ]


def agree(
    model: Model, random: np.random.Generator, jobs: list[Job], limits: Limits, draft: Literal["lookup"] | None = None
) -> Scheduler:
    """Run jobs that come at random times, cancel some; each must have what it has alone, as far as it came."""
    scheduler = Scheduler(model, limits, draft=draft)
    tickets: list[Ticket] = []
    told: dict[int, list[int]] = {}
    waiting = list(jobs)
    while waiting or not scheduler.idle:
        coming = int(random.integers(0, 4))
        tickets += [scheduler.submit(job) for job in waiting[:coming]]
        del waiting[:coming]
        for event in scheduler.step():
            if event.token is not None:
                told.setdefault(id(event.ticket), []).append(event.token.token_id)
        if tickets and random.random() < 0.05:
            scheduler.cancel(tickets[int(random.integers(0, len(tickets)))])
    for ticket in tickets:
        assert ticket.error is None
        made = ticket.generations[0]
        alone = model.generate(list(ticket.job.prompt), ticket.job.params)
        count = len(made.token_ids)
        assert told.get(id(ticket), []) == list(made.token_ids)
        assert made.token_ids == alone.token_ids[:count]
        assert made.logprobs == (alone.logprobs if alone.logprobs is None else alone.logprobs[:count])
        assert made.finish_reason in {"cancelled", alone.finish_reason}
    return scheduler


def jobs_of(model: Model, random: np.random.Generator, vocabulary: int, count: int, longest: int) -> list[Job]:
    """Jobs, some of them one after the other in a conversation, of several priorities and salts."""
    prompts = prompts_of(random, vocabulary, count, longest)
    params = [model.sampling(**one) for one in params_of(random, count)]
    return [
        Job(prompt=prompt, params=one, priority=int(random.integers(0, 2)), salt="ab"[int(random.integers(0, 2))])
        for prompt, one in zip(prompts, params, strict=True)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {}),
        ("llama", {"kv_dtype": "int8", "dtype": "int8:g32"}),
        ("gpt2", {"dtype": "bf16", "compute": "bfloat16"}),
        ("gemma2", {"dtype": "int4:g32"}),
        ("mistral", {"kv_dtype": "float16"}),
        ("qwen3_moe", {}),
        ("mamba", {}),
        ("falcon_h1", {}),
    ],
)
def test_tokens_are_those_of_the_prompt_alone(family: str, options: dict[str, Any]):
    random = np.random.default_rng(len(family) + len(options))
    with volumetric.load(TINY / family, device="cpu", context=80, **options) as model:
        for prefix_bytes, rows in ((None, 7), (0, 33), (2**26, None)):
            limits = Limits(slots=5, prompt_rows=rows, prefix_bytes=prefix_bytes, **SPARE)
            scheduler = agree(model, random, jobs_of(model, random, 90, 14, 60), limits)
            stats = scheduler.stats
            assert (stats.cached_tokens > 0) <= (prefix_bytes is not None)
        # Memory for two sequences and a little: prefixes are dropped, sequences give up their seats.
        memory = model.executable.memory
        limit = 4 * memory.state_fixed + 200 * max(memory.state_per_token, 1)
        tight = Limits(slots=5, state_bytes=limit, ahead=1, **SPARE)
        scheduler = agree(model, random, jobs_of(model, random, 90, 14, 60), tight)
        assert scheduler.stats.state_bytes <= limit


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {"kv_dtype": "int8", "dtype": "int8:g32"}),
        ("mistral", {"kv_dtype": "float16"}),
        ("gemma2", {"dtype": "int4:g32"}),
        ("falcon_h1", {}),
    ],
)
def test_drafts_change_no_token(family: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """Some sequences have good guesses, some bad ones, some are looked up, in memory for a few and for all."""
    monkeypatch.setattr(prefill_budget, "_PRICE_WEIGHT", 0.0)  # how many are made depends on no time
    random = np.random.default_rng(len(family))
    with volumetric.load(TINY / family, device="cpu", context=80, **options) as model:
        wrong = 0
        for tight in (False, True):
            jobs = jobs_of(model, random, 90, 14, 40)
            for at, one in enumerate(jobs[:9]):
                one = replace(one, params=replace(one.params, max_tokens=24))
                right = model.generate(list(one.prompt), one.params).token_ids
                share = (0.0, 0.8, 1.0)[at % 3]
                jobs[at] = replace(one, drafter=partial(Guesses, right, len(one.prompt), share, at))
            memory = model.executable.memory
            limit = 12 * memory.state_fixed + 220 * max(memory.state_per_token, 1) if tight else None
            limits = Limits(slots=5, state_bytes=limit, ahead=1, **SPARE)
            scheduler = agree(model, random, jobs, limits, "lookup")
            stats = scheduler.stats
            assert 0 < stats.accepted_tokens <= stats.drafted_tokens
            wrong += stats.drafted_tokens - stats.accepted_tokens
            if limit is not None:
                assert stats.state_bytes <= limit
        assert wrong > 0


@pytest.mark.parametrize("form", ["stop", "end", "cancelled", "several"])
def test_a_text_ends_in_the_middle_of_a_draft(form: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefill_budget, "_PRICE_WEIGHT", 0.0)
    model = deep_letters(ReferenceDevice(), MultiHeadAttention(embed_dim=8, num_heads=2), context=96)
    sampling: dict[str, Any] = {"max_tokens": 24, "ignore_eos": True, "temperature": 1.5, "seed": 3}
    alone = model.generate("abc", **sampling)
    latest = max(set(alone.token_ids), key=alone.token_ids.index)
    rest: dict[str, Any] = {"stop": {"stop": [alone.text[7:10]]}, "end": {"stop_ids": [latest]}}
    params = model.sampling(**sampling, **rest.get(form, {}))
    expected = model.generate("abc", params)
    right = partial(Guesses, expected.token_ids, 3, 1.0, 1)
    scheduler = Scheduler(model)
    for _ in range(2):  # the second one starts from what the first one has left
        job = Job(prompt=model.encode("abc"), params=params, drafter=right, n=2 if form == "several" else 1)
        ticket = scheduler.submit(job)
        events: list[JobEvent] = []
        while not scheduler.idle:
            events += scheduler.step()
            if form == "cancelled" and len(events) > 8:
                scheduler.cancel(ticket)
        made = ticket.generations[0]
        told = [event.token for event in events if event.token is not None and event.choice == 0]
        assert [token.token_id for token in told] == list(made.token_ids)
        assert made.stats.accepted_tokens > 0
        if form == "cancelled":
            assert made.token_ids == expected.token_ids[: len(made.token_ids)]
        else:
            assert (made.text, made.token_ids) == (expected.text, expected.token_ids)
            assert told[-1].finish_reason == expected.finish_reason
        longer = [*ticket.job.prompt, *made.token_ids, 3, 4]
        going_on = scheduler.submit(Job(prompt=longer, params=model.sampling(max_tokens=5, ignore_eos=True)))
        while not scheduler.idle:
            scheduler.step()
        assert going_on.generations[0].token_ids == model.generate(longer, max_tokens=5, ignore_eos=True).token_ids


@pytest.mark.parametrize(
    ("device", "inner", "rows", "more"),
    [
        (ReferenceDevice(), GRU(input_size=8, hidden_size=8), 40, 2),
        (CpuDevice(), GRU(input_size=8, hidden_size=8), 40, 2),
        (CpuDevice(), MultiHeadAttention(embed_dim=8, num_heads=2, window=20), 100, 560),
    ],
)
def test_what_cannot_go_back_is_reused_where_a_copy_was_kept(device: Device, inner: LayerSpec, rows: int, more: int):
    random = np.random.default_rng(5)
    shared, tails = random.integers(0, 8, rows).tolist(), random.integers(0, 8, more + 4).tolist()
    model = deep_letters(device, inner, context=700)
    scheduler = Scheduler(model)
    cached: list[int] = []
    for turn in (0, 1, 2, 3, 3):
        prompt = [*shared, turn, *tails[: more + turn]]
        job = Job(prompt=prompt, params=model.sampling(temperature=1.0, seed=turn, max_tokens=5, ignore_eos=True))
        ticket = scheduler.submit(job)
        while not scheduler.idle:
            scheduler.step()
        assert ticket.generations[0].token_ids == model.generate(prompt, job.params).token_ids
        cached.append(ticket.generations[0].stats.cached_tokens)
    # The second prompt shows where they part, the third finds the copy that was kept there, and the last one the copy
    # of the same prompt, before its last token.
    assert cached == [0, 0, rows, rows, rows + more + 3]


def test_of_prompts_that_come_together_the_beginning_is_computed_once():
    model = recurrent_letters(ReferenceDevice())
    attention = deep_letters(ReferenceDevice(), MultiHeadAttention(embed_dim=8, num_heads=2), context=96)
    shared = [1, 2, 3, 4] * 12
    made = attention.generate_batch([[*shared, i] for i in range(4)], max_tokens=3, ignore_eos=True)
    assert [one.stats.cached_tokens for one in made] == [0, 48, 48, 48]
    for i, one in enumerate(made):
        assert one.token_ids == attention.generate([*shared, i], max_tokens=3, ignore_eos=True).token_ids
    made = model.generate_batch([[*shared[:20], i] for i in range(3)], max_tokens=3, ignore_eos=True)
    assert [one.stats.cached_tokens for one in made] == [0, 0, 0]


def test_jobs_of_other_salts_share_nothing():
    model = deep_letters(ReferenceDevice(), MultiHeadAttention(embed_dim=8, num_heads=2), context=96)
    scheduler = Scheduler(model)
    cached: list[int] = []
    for salt in ("", "a", "a", ""):
        ticket = scheduler.submit(Job(prompt=[1, 2, 3] * 10, params=model.sampling(max_tokens=2), salt=salt))
        while not scheduler.idle:
            scheduler.step()
        cached.append(ticket.generations[0].stats.cached_tokens)
    assert cached == [0, 0, 29, 29]
    assert scheduler.stats.prefix_entries == 2
