"""Limits: how much a scheduler takes on."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any

from volumetric.base.errors import SpecError
from volumetric.generate.params import is_number

TOGETHER = 16
"""Sequences computed together unless told otherwise: each one has a cache, and more gain little on a CPU."""

PROMPT_ROWS = 128
"""Rows of prompts in a call beside sequences that decode, unless told otherwise. On a CPU that is the work of some ten
calls without them, on a large GPU of one: less would read the weights for little, more keeps the others waiting."""

PREFILL_ROWS = 512
"""Rows of a prompt that go to the device in one call: bounds its scratch memory and the wait for an interrupt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a scheduler takes on.

    Attributes
    ----------
    seats : sequences computed together, at most
    prompt_rows : rows of prompts in a call beside sequences that decode; None: as many as `max_stall` allows
    max_stall : seconds that a call with rows of prompts may keep sequences waiting that decode, as far as the time of
        earlier calls tells; no fewer than 16 rows are taken, and prompts have half of this time in any case
    state_bytes : memory of all states, of running sequences and of kept prefixes; None: no bound
    prefix_bytes : memory of kept prefixes, within `state_bytes`; 0: what begins alike is shared between running
        sequences alone; None: nothing is shared
    ahead : tokens of an answer that must fit into `state_bytes` before its job gets a seat; more is given as it comes
    turn : calls of the device by which a request (or a key) may get ahead of one that waits for a slot, each counted as
        many times as it has sequences in it; then the youngest of them makes room. What it has computed is kept; if
        there is no memory for it, it makes room after eight times as many calls. None: all run to their end
    queue, queue_tokens : requests, and jobs of none, that may wait, and tokens of their prompts; None: any number
    queue_seconds : how long a job may wait for its first seat; None: for ever

    Raises
    ------
    SpecError : a value is of the wrong kind or too small
    """

    seats: int = TOGETHER
    prompt_rows: int | None = None
    max_stall: float = 0.08
    state_bytes: int | None = None
    prefix_bytes: int | None = 2**28
    ahead: int = 512
    turn: int | None = 256
    queue: int | None = 64
    queue_tokens: int | None = 65_536
    queue_seconds: float | None = 60.0

    @classmethod
    def of_one_caller(cls, *, seats: int, prompt_rows: int, prefix_bytes: int | None) -> Limits:
        """Return limits for somebody who waits for all of their own jobs: any number of them may wait, for ever."""
        options = {"seats": seats, "prompt_rows": prompt_rows, "prefix_bytes": prefix_bytes}
        return cls(**options, queue=None, queue_tokens=None, queue_seconds=None)

    def part(self, share: float) -> Limits:
        """Return the limits of one of several schedulers that have the memory for states together."""
        state, prefixes = self.state_bytes, self.prefix_bytes
        return replace(
            self,
            state_bytes=None if state is None else max(1, int(state * share)),
            prefix_bytes=None if prefixes is None else int(prefixes * share),
        )

    def __post_init__(self) -> None:
        for one in fields(self):
            value: Any = getattr(self, one.name)
            whole = "int" in str(one.type)
            least = 1 if one.name in ("seats", "prompt_rows", "state_bytes", "turn") else 0
            if value is None and "None" in str(one.type):
                continue
            if not is_number(value, Integral if whole else Real) or not value >= least:
                kind = "a whole number" if whole else "a number"
                raise SpecError(f"{one.name} must be {kind} of {least} or more, got {value!r}")
