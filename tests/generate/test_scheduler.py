"""The scheduler: seats, order, bounds, ends; on a real network that knows the alphabet, and a clock that tests turn."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.generate.letters import deep_letters, letters, next_letter_logits, recurrent_letters
from volumetric.base.errors import (
    DeviceError,
    DoesNotFitError,
    ExpiredError,
    GenerationError,
    OverloadedError,
    ShuttingDownError,
    SpecError,
)
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.devices.reference_state import ReferenceState
from volumetric.generate import Job, JobEvent, Limits, Model, Scheduler, Ticket
from volumetric.layers import LSTM, LayerSpec, MultiHeadAttention


class Clock:
    """Seconds that go up when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def job(model: Model, prompt: str | list[int], **rest: Any) -> Job:
    own = {name: rest.pop(name) for name in ("n", "priority", "deadline", "salt") if name in rest}
    return Job(prompt=model.encode(prompt), params=model.sampling(**rest), **own)


def finish(scheduler: Scheduler, most: int = 1000) -> list[JobEvent]:
    events: list[JobEvent] = []
    for _ in range(most):
        if scheduler.idle:
            return events
        events += scheduler.step()
    raise AssertionError("the scheduler does not come to an end")


def tokens(events: list[JobEvent], ticket: Ticket) -> list[int]:
    return [event.token.token_id for event in events if event.ticket is ticket and event.token is not None]


def test_jobs_come_and_go_while_others_run():
    model = letters()
    scheduler = Scheduler(model)
    assert scheduler.idle
    assert scheduler.step() == []
    first = scheduler.submit(job(model, "a"))
    events = scheduler.step() + scheduler.step()
    second = scheduler.submit(job(model, "abcd", max_tokens=2))
    events += finish(scheduler)
    assert first.generations[0].text == "bcdefgh"
    assert (second.generations[0].text, second.generations[0].finish_reason) == ("ef", "length")
    assert tokens(events, first) == list(first.generations[0].token_ids)
    last = [event for event in events if event.ticket is first][-1]
    assert last.generation is not None
    assert last.generation.text == "bcdefgh"
    assert first.ended
    assert second.ended
    stats = scheduler.stats
    assert (stats.submitted, stats.finished, stats.running, stats.waiting) == (2, 2, 0, 0)
    assert (stats.prompt_tokens, stats.generated_tokens) == (5, 10)
    assert stats.first_token.count == 2
    assert stats.between_tokens.count == 8


def test_several_texts_of_a_job_share_its_prompt():
    model = letters()
    scheduler = Scheduler(model)
    ticket = scheduler.submit(job(model, "abc", n=3, temperature=2.0, seed=7, max_tokens=6, ignore_eos=True))
    events = finish(scheduler)
    for choice, made in enumerate(ticket.generations):
        alone = model.generate("abc", temperature=2.0, seed=7 + choice, max_tokens=6, ignore_eos=True)
        assert made.token_ids == alone.token_ids
        own = [event for event in events if event.choice == choice]
        assert [event.token.index for event in own if event.token] == list(range(6))
        assert own[-1].generation is not None
    with pytest.raises(SpecError, match="n must be 1 to 16"):
        scheduler.submit(job(model, "abc", n=17))


def test_seats_go_by_priority_then_by_arrival():
    model = letters()
    scheduler = Scheduler(model, Limits(slots=1))
    names = {scheduler.submit(job(model, "a", max_tokens=1, priority=p)).number: f"{p}" for p in (0, 0, 5, 1)}
    assert [names[event.ticket.number] for event in finish(scheduler)] == ["5", "1", "0", "0"]
    order = sorted(names, key=lambda number: (-int(names[number]), number))
    assert order == [3, 4, 1, 2]


def test_the_queue_is_bounded_by_jobs_and_by_tokens():
    model = letters()
    scheduler = Scheduler(model, Limits(slots=1, queue=2, queue_tokens=7))
    for _ in range(3):  # one of them will have the seat
        scheduler.submit(job(model, "ab"))
    with pytest.raises(OverloadedError, match="3 requests are waiting") as caught:
        scheduler.submit(job(model, "ab"))
    assert 1 <= caught.value.retry_after <= 30
    for _ in range(9):
        scheduler.step()
    assert scheduler.stats.waiting == 1
    with pytest.raises(OverloadedError, match="2 tokens of prompts are waiting, 6 more exceed the limit of 7"):
        scheduler.submit(job(model, "abcabc"))
    assert scheduler.stats.rejected == {"OverloadedError": 2}
    assert len(finish(scheduler)) > 0
    assert scheduler.stats.finished == 3


def test_what_cannot_be_computed_is_refused_at_once():
    model = letters(context=8)
    scheduler = Scheduler(model)
    with pytest.raises(DoesNotFitError, match="10 tokens, the context holds 8"):
        scheduler.submit(Job(prompt=[0] * 10, params=model.sampling()))
    with pytest.raises(GenerationError, match="outside of the vocabulary"):
        scheduler.submit(Job(prompt=[99], params=model.sampling()))
    with pytest.raises(GenerationError, match="empty"):
        scheduler.submit(Job(prompt=[], params=model.sampling()))
    for wrong in ([1.5], [[1, 2]], ["a"], [[1], [2, 3]], [None]):
        with pytest.raises(GenerationError, match="token ids must be a list of whole numbers"):
            scheduler.submit(Job(prompt=wrong, params=model.sampling()))  # pyright: ignore[reportArgumentType]
    for far in ([2**70, 1], [-(2**63), 1], [2**63]):
        with pytest.raises(GenerationError, match=r"token ids (must be far below|must be in 0)"):
            scheduler.submit(Job(prompt=far, params=model.sampling()))
    assert scheduler.idle
    with pytest.raises(SpecError, match="slots must be a whole number of 1 or more"):
        Limits(slots=0)
    with pytest.raises(SpecError, match="max_stall must be a number"):
        Limits(max_stall="soon")  # pyright: ignore[reportArgumentType]


def test_a_prompt_is_what_it_was_at_submission():
    model = letters()
    given = [0, 1]
    scheduler = Scheduler(model)
    ticket = scheduler.submit(Job(prompt=given, params=model.sampling(max_tokens=2)))
    given[:] = [5, 5]
    finish(scheduler)
    assert ticket.generations[0].text == "cd"


def test_a_cancelled_job_ends_before_the_next_call():
    model = letters()
    scheduler = Scheduler(model, Limits(slots=1))
    running, waiting = (scheduler.submit(job(model, "a", ignore_eos=True)) for _ in range(2))
    scheduler.step()
    for ticket in (running, waiting, running):
        scheduler.cancel(ticket)
    events = scheduler.step()
    assert {event.ticket.number for event in events} == {1, 2}
    assert [event.generation.finish_reason for event in events if event.generation] == ["cancelled"] * 2
    assert running.generations[0].text == "b"
    assert scheduler.idle
    assert scheduler.stats.cancelled == 2
    scheduler.cancel(running)
    assert scheduler.step() == []
    after = scheduler.submit(job(model, "f"))
    finish(scheduler)
    assert after.generations[0].text == "gh"


def test_closing_ends_all_jobs_with_what_they_have():
    model = letters()
    scheduler = Scheduler(model, Limits(slots=1))
    running, waiting = (scheduler.submit(job(model, "a", stop=["bcx"])) for _ in range(2))
    scheduler.step()
    scheduler.step()
    scheduler.close()
    assert scheduler.idle
    assert [ticket.generations[0].text for ticket in (running, waiting)] == ["bc", ""]
    assert running.ended
    assert waiting.ended
    assert scheduler.step() == []


def test_deadlines_and_the_time_in_the_queue_are_kept():
    model, clock = letters(), Clock()
    scheduler = Scheduler(model, Limits(slots=1, queue_seconds=5.0), clock=clock)
    running = scheduler.submit(job(model, "a", ignore_eos=True, deadline=20.0))
    patient = scheduler.submit(job(model, "a"))
    scheduler.step()
    clock.now = 6.0
    (late,) = [event for event in scheduler.step() if event.error is not None]
    assert late.ticket is patient
    assert isinstance(late.error, ExpiredError)
    assert late.error.queued
    clock.now = 20.0
    (late,) = scheduler.step()
    assert late.ticket is running
    assert isinstance(running.error, ExpiredError)
    assert not running.error.queued
    assert scheduler.idle
    assert (scheduler.stats.expired, scheduler.stats.failed) == (2, 2)


def test_draining_refuses_new_jobs_finishes_old_ones_and_cuts_off_the_rest():
    model, clock = letters(), Clock()
    scheduler = Scheduler(model, clock=clock)
    short = scheduler.submit(job(model, "g"))
    long = scheduler.submit(job(model, "a", ignore_eos=True, max_tokens=30))
    scheduler.drain(deadline=9.0)
    with pytest.raises(ShuttingDownError):
        scheduler.submit(job(model, "a"))
    for _ in range(4):
        scheduler.step()
    assert short.generations[0].text == "h"
    clock.now = 9.0
    (end,) = scheduler.step()
    assert end.ticket is long
    assert isinstance(end.error, ShuttingDownError)
    assert scheduler.idle


def test_logits_that_are_not_numbers_fail_their_own_job_alone():
    table = next_letter_logits()
    table[3] = np.nan  # after d
    model = letters(table)
    for rest in ({}, {"temperature": 0.5, "seed": 1, "top_k": 1}):
        scheduler = Scheduler(model)
        bad = scheduler.submit(job(model, "b", **rest))
        good = scheduler.submit(job(model, "efe", **rest))
        finish(scheduler)
        assert isinstance(bad.error, GenerationError)
        assert "NaN" in str(bad.error)
        assert bad.generations[0].text == "cd"
        assert good.error is None
        assert good.generations[0].text == "fgh"


def test_a_device_that_fails_ends_the_jobs_of_that_call_alone(monkeypatch: pytest.MonkeyPatch):
    model = letters()
    scheduler = Scheduler(model)
    first = scheduler.submit(job(model, "a", presence_penalty=0.1))
    scheduler.step()

    def lost(_: Any) -> Any:
        raise DeviceError("the device was lost")

    with monkeypatch.context() as broken:
        broken.setattr(model.executable, "run", lost)
        (event,) = scheduler.step()
    assert event.ticket is first
    assert isinstance(first.error, DeviceError)
    second = scheduler.submit(job(model, "a"))
    finish(scheduler)
    assert second.generations[0].text == "bcdefgh"


def test_a_device_without_room_for_a_copy_computes_instead(monkeypatch: pytest.MonkeyPatch):
    model = recurrent_letters(ReferenceDevice())
    scheduler = Scheduler(model)
    for number in range(3):
        ticket = scheduler.submit(job(model, [1, 2, 3, 4] * 5 + [number], max_tokens=3, ignore_eos=True))
        finish(scheduler)
    assert scheduler.stats.cached_tokens == 40  # before the last token of each a copy was kept

    def full(*_: Any) -> Any:
        raise DeviceError("the GPU has no room")

    with monkeypatch.context() as broken:
        broken.setattr(ReferenceState, "fork", full)
        ticket = scheduler.submit(job(model, [1, 2, 3, 4] * 5 + [3], max_tokens=3, ignore_eos=True))
        finish(scheduler)
    assert ticket.error is None
    assert ticket.generations[0].stats.cached_tokens == 0
    right = model.generate([1, 2, 3, 4] * 5 + [3], max_tokens=3, ignore_eos=True)
    assert ticket.generations[0].token_ids == right.token_ids


def test_prompts_take_turns_the_shortest_first_but_none_waits_for_ever():
    model = letters(context=64)
    scheduler = Scheduler(model, Limits(prompt_rows=4, prefix_bytes=None))
    scheduler.submit(job(model, "a", ignore_eos=True, max_tokens=60))
    scheduler.step()
    long = scheduler.submit(job(model, [1, 2] * 10))
    order: list[int] = []
    for number in range(12):
        scheduler.submit(job(model, [3, 4, 5, number % 8], max_tokens=1))
        order += [event.ticket.number for event in scheduler.step() if event.ticket.number > 1]
    # Five times four rows for the long one, each after at most four calls for others.
    assert order[:4] == [3, 4, 5, 6]
    assert long.generations[0].stats.generated_tokens == 0
    finish(scheduler)
    assert long.error is None
    assert long.generations[0].stats.generated_tokens > 0


def test_memory_is_bounded_and_the_youngest_waits_for_it():
    model = recurrent_letters(ReferenceDevice())
    memory = model.executable.memory
    assert memory.state_fixed > 0
    rest: dict[str, Any] = {"ignore_eos": True, "max_tokens": 26, "temperature": 1.3}
    alone = [model.generate("abc", seed=seed, **rest).token_ids for seed in range(4)]
    # Two blocks of 32 rows for each of two sequences do not fit beside one another; to begin, one block each is enough.
    limit = 2 * (memory.state_fixed + 32 * memory.state_per_token) + memory.state_per_token
    scheduler = Scheduler(model, Limits(state_bytes=limit, prefix_bytes=0))
    tickets = [scheduler.submit(job(model, "abc", seed=seed, **rest)) for seed in range(4)]
    most = 0
    while not scheduler.idle:
        scheduler.step()
        most = max(most, scheduler.stats.state_bytes)
    assert most <= limit
    assert [ticket.generations[0].token_ids for ticket in tickets] == alone
    with pytest.raises(DoesNotFitError, match="the memory for 3 states holds 0"):
        scheduler.submit(job(model, "abc", n=3))


@pytest.mark.parametrize("inner", [MultiHeadAttention(embed_dim=8, num_heads=2), LSTM(input_size=8, hidden_size=8)])
def test_who_outgrows_the_memory_gives_its_seat_up_and_ends_with_the_same_tokens(inner: LayerSpec):
    model = deep_letters(ReferenceDevice(), MultiHeadAttention(embed_dim=8, num_heads=2), inner, context=96)
    memory = model.executable.memory
    rest: dict[str, Any] = {"ignore_eos": True, "max_tokens": 40, "temperature": 1.3}
    prompts = [[1, 2, 3] * 8, [4, 5, 6, 7] * 6]
    alone = [model.generate(prompt, seed=3, **rest).token_ids for prompt in prompts]
    limit = 2 * memory.state_fixed + 3 * 32 * memory.state_per_token
    scheduler = Scheduler(model, Limits(state_bytes=limit, ahead=4))
    tickets = [scheduler.submit(job(model, prompt, seed=3, **rest)) for prompt in prompts]
    events = finish(scheduler)
    assert scheduler.stats.preempted == 1
    for ticket, right in zip(tickets, alone, strict=True):
        assert ticket.generations[0].token_ids == right
        assert tokens(events, ticket) == list(right)


def test_jobs_are_submitted_and_cancelled_from_other_threads():
    model = letters()
    scheduler = Scheduler(model, Limits(slots=4, queue=None))
    tickets: list[Ticket] = []

    def client(number: int) -> None:
        for turn in range(8):
            ticket = scheduler.submit(job(model, "abcdefg"[: 1 + (number + turn) % 7], max_tokens=6))
            tickets.append(ticket)
            if turn % 3 == 0:
                scheduler.cancel(ticket)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for one in clients:
        one.start()
    events: list[JobEvent] = []
    while any(one.is_alive() for one in clients) or not scheduler.idle:
        if scheduler.wait(0.01):
            events += scheduler.step()
    assert len(tickets) == 32
    assert all(ticket.ended for ticket in tickets)
    for ticket in tickets:
        made = ticket.generations[0]
        alone = model.generate(list(ticket.job.prompt), max_tokens=6).token_ids
        assert made.token_ids == (alone if made.finish_reason != "cancelled" else alone[: len(made.token_ids)])
        assert tokens(events, ticket) == list(made.token_ids)
    assert scheduler.stats.finished + scheduler.stats.cancelled == 32
