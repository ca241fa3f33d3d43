"""The queue of a scheduler: bounded, by priority, then by arrival."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator

from volumetric.errors import OverloadedError
from volumetric.generate.scheduling.limits import Limits
from volumetric.generate.scheduling.live import Live


class Waiting:
    """Generations without a seat: those that are new, and those that gave theirs up. Not safe for threads."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all: list[Live] = []
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Live]:
        return iter(self._all)

    @property
    def first(self) -> Live | None:
        """The one to be seated next."""
        return self._all[0] if self._all else None

    def check(self, tokens: int, free: int, retry_after: float) -> None:
        """Raise `OverloadedError` if a job with so many tokens cannot wait; `free` of those that do have a seat."""
        limits = self._limits
        if limits.queue is not None and len(self._all) >= limits.queue + free:
            what = f"{len(self._all)} jobs wait already, {limits.queue} may"
        elif limits.queue_tokens is not None and self._all and self.tokens + tokens > limits.queue_tokens:
            what = f"{self.tokens} tokens of prompts wait already, {tokens} more exceed {limits.queue_tokens}"
        else:
            return
        raise OverloadedError(what, retry_after=retry_after)

    def push(self, live: Live) -> None:
        """Let one wait, in its place."""
        insort(self._all, live, key=lambda one: one.order)
        self.tokens += len(live.ids)

    def take(self, which: Callable[[Live], bool]) -> list[Live]:
        """Remove and return all of a kind."""
        taken = [live for live in self._all if which(live)]
        if taken:
            gone = {id(live) for live in taken}
            self._all = [live for live in self._all if id(live) not in gone]
            self.tokens -= sum(len(live.ids) for live in taken)
        return taken

    def pop(self) -> Live:
        """Remove and return the first."""
        live = self._all.pop(0)
        self.tokens -= len(live.ids)
        return live
