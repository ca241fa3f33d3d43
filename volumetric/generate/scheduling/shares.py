"""Shares: which request is next for a slot, by weighted fair queueing over keys and over the requests of each.

While somebody waits, a call of the device costs each request as many units as it has sequences in it, and each key that
sum over its weight. Who has used least is next. Those that come begin where a share without interruption would be by
then, the virtual time of A. Demers, S. Keshav and S. Shenker, "Analysis and Simulation of a Fair Queueing Algorithm",
SIGCOMM 1989: they owe nothing for the time before, and cannot save it up. While nobody waits nothing is counted.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from volumetric.generate.scheduling.live import Live

F = TypeVar("F", bound="Flow")


@dataclass(slots=True, eq=False)
class Flow:
    """Somebody who competes for slots.

    Attributes
    ----------
    key : name among its like
    used : calls times slots so far, over `weight`
    running : slots taken
    members : texts that run or wait; without any, it is forgotten
    weight : share of the slots, relative to others
    """

    key: Hashable
    used: float
    weight: float = 1.0
    running: int = 0
    members: int = 0


class Level(Generic[F]):
    """Flows that compete with each other.

    Attributes
    ----------
    flows : by their keys
    now : what a flow of weight 1 would have used that always took its share
    """

    def __init__(self) -> None:
        self.flows: dict[Hashable, F] = {}
        self.now = 0.0

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
    """The texts of a request; `waiting` ones by priority, then by arrival. Its `owner` competes with other owners."""

    waiting: list[Live] = field(default_factory=list)
    owner: OwnerFlow = field(kw_only=True)


@dataclass(slots=True, eq=False)
class OwnerFlow(Flow):
    """The requests of a key."""

    requests: Level[RequestFlow] = field(default_factory=Level[RequestFlow])


class Shares:
    """Keys, and their requests, of all texts that run or wait."""

    def __init__(self) -> None:
        self._owners = Level[OwnerFlow]()

    @property
    def requests(self) -> list[RequestFlow]:
        """All requests."""
        return [flow for owner in self._owners.flows.values() for flow in owner.requests.flows.values()]

    def find(self, live: Live) -> RequestFlow | None:
        """Return the request of a text, if any text of it runs or waits."""
        job = live.ticket.job
        owner = self._owners.flows.get(job.owner)
        return None if owner is None else owner.requests.flows.get(job.request)

    def enter(self, live: Live) -> RequestFlow:
        """Count a text, and those that follow it, as a member of its request, and return that."""
        job = live.ticket.job
        owners = self._owners
        owner = owners.flows.get(job.owner)
        if owner is None:
            owner = owners.flows[job.owner] = OwnerFlow(job.owner, owners.now)
        owner.weight = job.weight
        flow = owner.requests.flows.get(job.request)
        if flow is None:
            flow = RequestFlow(job.request, owner.requests.now, owner=owner)
            owner.requests.flows[job.request] = flow
        flow.members += live.texts
        owner.members += live.texts
        return flow

    def leave(self, live: Live) -> None:
        """Count a text, and those that follow it, no more."""
        flow = self.find(live)
        assert flow is not None
        owner = flow.owner
        flow.members -= live.texts
        owner.members -= live.texts
        if not flow.members:
            del owner.requests.flows[flow.key]
        if not owner.members:
            del self._owners.flows[owner.key]

    def run(self, live: Live, slots: int) -> None:
        """Count slots as taken by a text, or, below 0, as given back."""
        flow = self.find(live)
        assert flow is not None
        flow.running += slots
        flow.owner.running += slots

    def charge(self) -> None:
        """Count a call of the device in which somebody waits."""
        self._owners.charge()
        for owner in self._owners.flows.values():
            owner.requests.charge()

    def ahead(self, running: Live, waiting: Live) -> float:
        """Return how much more the request of one text has used than that of another, or its key, where keys differ."""
        one, other = self.find(running), self.find(waiting)
        assert one is not None
        assert other is not None
        return one.used - other.used if one.owner is other.owner else one.owner.used - other.owner.used
