"""Slots go in turns: of keys by their weights, of requests, and by arrival; nobody waits longer than a bound."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.generate.letters import deep_letters, letters
from volumetric.base.errors import ExpiredError, OverloadedError, SpecError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Job, JobEvent, Limits, Model, Scheduler, Ticket
from volumetric.layers import MultiHeadAttention

FIELDS = ("n", "priority", "deadline", "owner", "weight", "request")
OPEN: dict[str, Any] = {"queue": None, "queue_tokens": None, "queue_seconds": None}


def job(model: Model, prompt: str, **rest: Any) -> Job:
    own = {name: rest.pop(name) for name in FIELDS if name in rest}
    return Job(prompt=model.encode(prompt), params=model.sampling(ignore_eos=True, **rest), **own)


def steps_until(scheduler: Scheduler, ticket: Ticket, most: int = 500) -> int:
    """Run until a job has its first slot; return after how many calls."""
    for count in range(1, most + 1):
        scheduler.step()
        if ticket.started:
            return count
    raise AssertionError(f"no slot within {most} calls")


def slots(scheduler: Scheduler) -> Counter[object]:
    """Slots that each owner has now."""
    found: Counter[object] = Counter()
    for live in scheduler._slots.all:
        found[live.ticket.job.owner] += live.texts
    return found


@pytest.mark.parametrize("n", [1, 8])
def test_who_comes_is_next_whatever_number_of_texts_another_request_has(n: int):
    model = letters()
    scheduler = Scheduler(model)
    for _ in range(64):
        scheduler.submit(job(model, "abc", n=n, max_tokens=2, request="many"))
    scheduler.step()
    assert scheduler.stats.running == 16
    late = scheduler.submit(job(model, "a", max_tokens=1, request="one"))
    assert steps_until(scheduler, late) <= 3  # as soon as any of the texts of two tokens ends
    scheduler.close()


@pytest.mark.thorough
def test_a_request_of_long_texts_makes_room_within_a_turn():
    model = letters(context=600)
    scheduler = Scheduler(model, Limits(turn=64, **OPEN))
    long = [scheduler.submit(job(model, "ab", max_tokens=500, request="many")) for _ in range(20)]
    for _ in range(5):
        scheduler.step()
    for number in range(3):
        late = scheduler.submit(job(model, "a", max_tokens=30, request=number))
        assert steps_until(scheduler, late) <= 64 // 16 + 2
    assert scheduler.stats.running == 16
    assert scheduler.stats.yielded == 3
    # Who has made room goes on from where it was.
    ended = {one for one in long if one.ended}
    assert not ended
    while not scheduler.idle:
        scheduler.step()
    assert all(one.generations[0].stats.generated_tokens == 500 for one in long)
    assert {one.generations[0].token_ids for one in long} == {long[0].generations[0].token_ids}


def test_jobs_of_no_request_run_to_their_end_in_their_order():
    model = letters(context=200)
    scheduler = Scheduler(model, Limits(slots=2, turn=1, **OPEN))
    for _ in range(6):
        scheduler.submit(job(model, "a", max_tokens=9))
    ends = []
    while not scheduler.idle:
        ends += [event.ticket.number for event in scheduler.step() if event.generation is not None]
    assert ends == [1, 2, 3, 4, 5, 6]
    assert scheduler.stats.yielded == 0


@pytest.mark.thorough
@pytest.mark.parametrize(("seats", "weights"), [(12, (1, 2, 3)), (1, (1, 3)), (4, (1, 1))])
def test_keys_have_slots_by_their_weights_whatever_they_ask_for(seats: int, weights: tuple[int, ...]):
    """The first key has many requests, each other one a single request of many texts."""
    model = letters(context=64)
    scheduler = Scheduler(model, Limits(slots=seats, turn=8, **OPEN))
    for owner, weight in enumerate(weights):
        for number in range(60):
            which = number if owner == 0 else 0
            scheduler.submit(job(model, "ab", max_tokens=40, owner=str(owner), weight=weight, request=which))
    used: Counter[object] = Counter()
    for count in range(200):
        scheduler.step()
        if count >= 40:
            used += slots(scheduler)
    shares = [used[str(owner)] / used.total() for owner in range(len(weights))]
    np.testing.assert_allclose(shares, np.array(weights) / sum(weights), atol=0.04)
    scheduler.close()


@pytest.mark.parametrize("seed", range(2))
def test_nobody_waits_longer_than_a_bound_however_many_come(seed: int):
    """Requests of all sizes and lengths come faster than they can be computed.

    Of the others none is ahead by more than a turn and one call, and each call takes its slots from that; those that a
    job of several texts needs at once may stay free for it meanwhile.
    """
    random = np.random.default_rng(seed)
    model = letters(context=100)
    seats, turn, most = 4, 6, 0
    scheduler = Scheduler(model, Limits(slots=seats, turn=turn, **OPEN))
    since: dict[object, int] = {}
    longest = 0
    for call in range(160):
        if random.random() < 0.4:
            rest = {"n": int(random.integers(1, seats + 1)), "max_tokens": int(random.integers(1, 40))}
            scheduler.submit(job(model, "ab", request=int(random.integers(0, 9)), **rest))
        scheduler.step()
        run = {one.ticket.job.request for one in scheduler._slots.all}
        wait = {one.ticket.job.request for one in scheduler._waiting} - run
        most = max(most, len(run | wait))
        since = {one: since.get(one, call) for one in wait}
        longest = max([longest, *(call - came for came in since.values())])
    assert 0 < longest <= most * (turn + 2 * seats) / seats
    scheduler.close()


def test_a_request_that_is_ahead_is_not_passed_over_for_ever_by_those_who_come():
    model = letters(context=100)
    scheduler = Scheduler(model, Limits(slots=2, turn=8, **OPEN))
    many = [scheduler.submit(job(model, "a", max_tokens=8, request="many")) for _ in range(4)]
    for call in range(200):
        if call % 2 == 0:  # as much as two slots can take
            scheduler.submit(job(model, "a", max_tokens=4, request=call))
        scheduler.step()
    assert all(ticket.ended for ticket in many)
    scheduler.close()


def test_many_texts_of_a_request_leave_room_in_the_queue_for_others():
    model = letters()
    scheduler = Scheduler(model, Limits(slots=2, queue=3, queue_tokens=None))
    for _ in range(7):  # two further texts for each of three that may wait
        scheduler.submit(job(model, "ab", request="many"))
    with pytest.raises(OverloadedError, match="6 further texts of requests are waiting, 1 more exceed the limit of 6"):
        scheduler.submit(job(model, "ab", request="many"))
    for number in range(4):
        scheduler.submit(job(model, "ab", request=number))
    with pytest.raises(OverloadedError, match="5 requests are waiting, the limit is 3"):
        scheduler.submit(job(model, "ab", request="last"))
    with pytest.raises(OverloadedError, match="5 requests are waiting, the limit is 3"):
        scheduler.submit(job(model, "ab"))
    scheduler.close()
    for weight in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(SpecError, match="the weight of a job"):
            scheduler.submit(job(model, "a", weight=weight))
    with pytest.raises(SpecError, match="turn must be a whole number of 1 or more"):
        Limits(turn=0)


def deep(context: int = 96) -> Model:
    return deep_letters(ReferenceDevice(), MultiHeadAttention(embed_dim=8, num_heads=2), context=context)


def finish(scheduler: Scheduler) -> list[JobEvent]:
    events: list[JobEvent] = []
    while not scheduler.idle:
        events += scheduler.step()
    return events


def test_a_paused_job_has_no_slot_and_goes_on_with_the_same_tokens():
    model, now = deep(), [0.0]
    rest: dict[str, Any] = {"max_tokens": 12, "temperature": 1.4, "seed": 5}
    alone = model.generate("abc", ignore_eos=True, **rest).token_ids
    scheduler = Scheduler(model, Limits(slots=1), clock=lambda: now[0])
    slow = scheduler.submit(job(model, "abc", **rest))
    other = scheduler.submit(job(model, "abc", **rest))
    for _ in range(4):
        scheduler.step()
    computed = scheduler.stats.rows.total
    scheduler.pause(slow)
    scheduler.pause(slow)
    for _ in range(12):
        scheduler.step()
    assert other.generations[0].token_ids == alone
    assert slow.generations[0].token_ids == alone[:4]
    assert not scheduler.idle
    assert scheduler.step() == []
    assert scheduler.wait(0.0)  # it may have come to its deadline
    scheduler.resume(slow)
    finish(scheduler)
    assert slow.generations[0].token_ids == alone
    assert scheduler.stats.rows.total == computed + (3 + 11) + 8  # nothing was computed again
    late = scheduler.submit(job(model, "abc", deadline=5.0, **rest))
    scheduler.step()
    scheduler.pause(late)
    scheduler.step()
    now[0] = 5.0
    (event,) = scheduler.step()
    assert isinstance(event.error, ExpiredError)
    assert scheduler.idle


def test_a_paused_job_is_cancelled_and_one_that_waits_is_paused():
    model = deep()
    scheduler = Scheduler(model, Limits(slots=1))
    first, second, third = (scheduler.submit(job(model, "ab", max_tokens=5, n=1)) for _ in range(3))
    scheduler.step()
    for ticket in (first, second):
        scheduler.pause(ticket)
    for _ in range(6):
        scheduler.step()
    assert third.ended
    scheduler.cancel(first)
    (event,) = scheduler.step()
    assert event.generation is not None
    assert event.generation.finish_reason == "cancelled"
    scheduler.resume(second)
    finish(scheduler)
    assert second.generations[0].finish_reason == "length"


@pytest.mark.thorough
@pytest.mark.parametrize("memory", ["any", "for two", "none is shared"])
def test_whatever_makes_way_ends_with_the_same_tokens_and_everything_is_given_back(memory: str):
    random = np.random.default_rng(7)
    model = deep()
    size = model.executable.memory
    two = 2 * (size.state_fixed + 96 * size.state_per_token)
    limits: dict[str, Any] = {"for two": {"state_bytes": two}, "none is shared": {"prefix_bytes": None}}.get(memory, {})
    scheduler = Scheduler(model, Limits(slots=3, turn=2, ahead=1, **OPEN, **limits))
    tickets: list[Ticket] = []
    while len(tickets) < 25 or not scheduler.idle:
        if len(tickets) < 25 and random.random() < 0.5:
            rest = {"n": int(random.integers(1, 3)), "max_tokens": int(random.integers(1, 30))}
            prompt = "abcdefgh" * int(random.integers(1, 4))
            one = job(model, prompt, request=int(random.integers(0, 5)), temperature=1.3, seed=len(tickets), **rest)
            tickets.append(scheduler.submit(one))
        if tickets:
            chosen = tickets[int(random.integers(0, len(tickets)))]
            (scheduler.pause if random.random() < 0.3 else scheduler.resume)(chosen)
            if random.random() < 0.03:
                scheduler.cancel(chosen)
        if len(tickets) == 25:
            for ticket in tickets:
                scheduler.resume(ticket)
        scheduler.step()
        if memory == "for two":
            assert scheduler.stats.state_bytes <= two
    for number, ticket in enumerate(tickets):
        assert ticket.error is None
        for choice, made in enumerate(ticket.generations):
            params = ticket.job.params
            alone = model.generate(list(ticket.job.prompt), params, seed=number + choice).token_ids
            assert made.token_ids == alone[: len(made.token_ids)]
            assert made.finish_reason in ("cancelled", "length")
    assert scheduler.stats.yielded > 0
    assert scheduler._waiting._shares.requests == []
    assert scheduler._slots._resting == []
    assert scheduler.stats.state_bytes == scheduler.stats.prefix_bytes
    assert (scheduler.stats.running, scheduler.stats.waiting, scheduler.stats.queue_tokens) == (0, 0, 0)
