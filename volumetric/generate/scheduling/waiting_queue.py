"""The queue of a scheduler: bounded, ordered by priority, then by fair shares, then by arrival.

It is weighted fair queueing over keys, and over the requests of each key. While a text waits, each device call costs a
request one unit per sequence in the call, and a key that sum divided by its weight. The one with the least use is next.
New ones start at the virtual time of A. Demers, S. Keshav and S. Shenker, "Analysis and Simulation of a Fair Queueing
Algorithm", SIGCOMM 1989, the use of an uninterrupted share: they neither owe for the time before, nor have saved it up.
While no text waits, nothing is counted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from volumetric.base.errors import OverloadedError
from volumetric.generate.scheduling.generation_sequence import GenerationSequence
from volumetric.generate.scheduling.limits import Limits

F = TypeVar("F", bound="Flow")


@dataclass(slots=True, eq=False)
class Flow:
    """A competitor for slots: a key or a request.

    Attributes
    ----------
    key : name among the flows of its level
    used : calls times slots so far, divided by `weight`
    running : number of slots in use
    members : texts that run or wait; a flow without members is removed
    weight : relative share of the slots
    """

    key: Hashable
    used: float
    weight: float = 1.0
    running: int = 0
    members: int = 0


class FlowGroup(Generic[F]):
    """Flows that compete with each other.

    Attributes
    ----------
    flows : flows by key
    now : virtual time: the use of a flow of weight 1 that always gets its share
    """

    def __init__(self) -> None:
        self.flows: dict[Hashable, F] = {}
        self.now: float = 0.0

    def charge(self) -> None:
        """Count a call of the device."""
        slots = weights = 0.0
        for flow in self.flows.values():
            flow.used += flow.running / flow.weight
            slots += flow.running
            weights += flow.weight
        if weights:
            self.now += slots / weights


@dataclass(slots=True, eq=False)
class RequestFlow(Flow):
    """The texts of a request, `waiting` ones by priority, then by arrival. Its `owner` competes with others."""

    waiting: list[GenerationSequence] = field(default_factory=list)
    owner: OwnerFlow = field(kw_only=True)


@dataclass(slots=True, eq=False)
class OwnerFlow(Flow):
    """The requests of a key."""

    requests: FlowGroup[RequestFlow] = field(default_factory=FlowGroup[RequestFlow])


class Shares:
    """Keys and requests of all texts that run or wait."""

    def __init__(self) -> None:
        self._owners = FlowGroup[OwnerFlow]()

    @property
    def requests(self) -> list[RequestFlow]:
        """All requests."""
        return [flow for owner in self._owners.flows.values() for flow in owner.requests.flows.values()]

    def find(self, sequence: GenerationSequence) -> RequestFlow | None:
        """Return the request of a text, if any text of it runs or waits."""
        job = sequence.ticket.job
        owner = self._owners.flows.get(job.owner)
        return None if owner is None else owner.requests.flows.get(job.request)

    def enter(self, sequence: GenerationSequence) -> RequestFlow:
        """Add a text and its followers to its request, and return the request."""
        job = sequence.ticket.job
        owners = self._owners
        owner = owners.flows.get(job.owner)
        if owner is None:
            owner = owners.flows[job.owner] = OwnerFlow(job.owner, owners.now)
        owner.weight = job.weight
        flow = owner.requests.flows.get(job.request)
        if flow is None:
            flow = RequestFlow(job.request, owner.requests.now, owner=owner)
            owner.requests.flows[job.request] = flow
        flow.members += sequence.texts
        owner.members += sequence.texts
        return flow

    def leave(self, sequence: GenerationSequence) -> None:
        """Remove a text and its followers from its request."""
        flow = self.find(sequence)
        assert flow is not None
        owner = flow.owner
        flow.members -= sequence.texts
        owner.members -= sequence.texts
        if not flow.members:
            del owner.requests.flows[flow.key]
        if not owner.members:
            del self._owners.flows[owner.key]

    def run(self, sequence: GenerationSequence, slots: int) -> None:
        """Count slots that a text takes, or frees if negative."""
        flow = self.find(sequence)
        assert flow is not None
        flow.running += slots
        flow.owner.running += slots

    def charge(self) -> None:
        """Count a device call during which a text waits."""
        self._owners.charge()
        for owner in self._owners.flows.values():
            owner.requests.charge()

    def ahead(self, running: GenerationSequence, waiting: GenerationSequence) -> float:
        """Return the lead in use of one text's request over another's, or of its key if keys differ."""
        one, other = self.find(running), self.find(waiting)
        assert one is not None
        assert other is not None
        return one.used - other.used if one.owner is other.owner else one.owner.used - other.owner.used


class WaitingQueue:
    """Generations without a slot, new or suspended, and the shares of all. Not thread-safe.

    Attributes
    ----------
    tokens : number of tokens of all of them
    paused : generations of paused jobs, which are skipped until they are resumed
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._shares = Shares()
        self._count = 0
        self.paused: list[GenerationSequence] = []
        self.tokens: int = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[GenerationSequence]:
        for flow in self._shares.requests:
            yield from flow.waiting
        yield from self.paused

    @property
    def first(self) -> GenerationSequence | None:
        """The next generation."""
        flow = self._next()
        return None if flow is None else flow.waiting[0]

    def check(self, sequence: GenerationSequence, free: int, retry_after: float) -> None:
        """Raise `OverloadedError` if a text and its followers exceed the queue; `free` slots are available.

        The limit counts requests, and jobs without one. Further texts of a request have a separate limit, so that no
        request is refused because of another one with many texts.
        """
        limits, flows = self._limits, self._shares.requests
        if limits.queue is not None:
            waiting = sum(len(flow.waiting) if flow.key is None else 1 for flow in flows if flow.waiting)
            waiting += len(self.paused)
            further = sum(sum(one.texts for one in flow.waiting) - 1 for flow in flows if flow.waiting)
            more = sequence.texts if self._shares.find(sequence) is not None else sequence.texts - 1
            if (
                sequence.ticket.job.request is None or self._shares.find(sequence) is None
            ) and waiting >= limits.queue + free:
                raise OverloadedError(
                    f"{waiting} requests are waiting, the limit is {limits.queue}", retry_after=retry_after
                )
            if sequence.ticket.job.request is not None and more and further + more > limits.queue * limits.slots:
                what = f"{further} further texts of requests are waiting, {more} more exceed the limit of"
                raise OverloadedError(f"{what} {limits.queue * limits.slots}", retry_after=retry_after)
        tokens = len(sequence.ids)
        if limits.queue_tokens is not None and self._count and self.tokens + tokens > limits.queue_tokens:
            what = (
                f"{self.tokens} tokens of prompts are waiting, {tokens} more exceed the limit of {limits.queue_tokens}"
            )
            raise OverloadedError(what, retry_after=retry_after)

    def push(self, sequence: GenerationSequence) -> None:
        """Insert a generation at its position."""
        self._count += 1
        self.tokens += len(sequence.ids)
        if sequence.ticket.paused:
            self.paused.append(sequence)
        else:
            insort(self._shares.enter(sequence).waiting, sequence, key=lambda one: one.order)

    def take(self, which: Callable[[GenerationSequence], bool]) -> list[GenerationSequence]:
        """Remove and return all generations that match `which`."""
        sequences = [sequence for sequence in self.paused if which(sequence)]
        self.paused = [sequence for sequence in self.paused if not which(sequence)]
        for flow in self._shares.requests:
            matching = [sequence for sequence in flow.waiting if which(sequence)]
            if matching:
                flow.waiting = [sequence for sequence in flow.waiting if not which(sequence)]
                for sequence in matching:
                    self._shares.leave(sequence)
                sequences += matching
        self._count -= len(sequences)
        self.tokens -= sum(len(sequence.ids) for sequence in sequences)
        return sequences

    def pop(self) -> GenerationSequence:
        """Remove and return the first generation, which gets slots."""
        flow = self._next()
        assert flow is not None
        sequence = flow.waiting.pop(0)
        self._count -= 1
        self.tokens -= len(sequence.ids)
        self._shares.run(sequence, sequence.texts)
        return sequence

    def release_slots(self, sequence: GenerationSequence) -> None:
        """Count the slots of a text and its followers as freed."""
        self._shares.run(sequence, -sequence.texts)
        self._shares.leave(sequence)

    def charge(self) -> None:
        """Count a device call, if a text waits for a slot."""
        if self._count > len(self.paused):
            self._shares.charge()

    def ahead(
        self, running: Iterable[GenerationSequence], waiting: GenerationSequence
    ) -> list[tuple[float, GenerationSequence]]:
        """Return generations of `running` from other requests, with their lead, the largest and youngest first."""
        own = self._shares.find(waiting)
        candidates = [
            (self._shares.ahead(sequence, waiting), sequence)
            for sequence in running
            if sequence.ticket.job.priority <= waiting.ticket.job.priority
            and sequence.ticket.job.session_state is None
            and self._shares.find(sequence) is not own
        ]
        return sorted(candidates, key=lambda one: (one[0], one[1].order), reverse=True)

    def _next(self) -> RequestFlow | None:
        """Return the request whose first text is next."""
        if self._count == len(self.paused):
            return None
        return min((flow for flow in self._shares.requests if flow.waiting), key=_place, default=None)


def _place(flow: RequestFlow) -> tuple[int, float, float, int, int]:
    """Sort key of requests: priority, use of the key and of the request, slots, arrival."""
    back, number = flow.waiting[0].order
    return back, flow.owner.used, flow.used, flow.running, number
