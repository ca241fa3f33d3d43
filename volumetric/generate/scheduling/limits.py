"""Limits of a scheduler."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any

from volumetric.base.errors import SpecError
from volumetric.base.moved_modules import renamed_members
from volumetric.generate.params import is_number

TOGETHER = 16
"""Default number of sequences in a batch: each has a cache, and more gain little on a CPU."""

PROMPT_ROWS = 128
"""Default rows of prompts in a call with decoding sequences. On a CPU they are the work of about ten calls without
them, on a large GPU of one: fewer rows use the weights badly, more delay the others."""

PREFILL_ROWS = 512
"""Most rows of a prompt in one device call: bounds scratch memory, and the time until an interrupt."""


@renamed_members(True, seats="slots")
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a scheduler.

    Attributes
    ----------
    slots : most sequences in a batch
    prompt_rows : most rows of prompts in a call with decoding sequences; None: as many as `max_stall` allows
    max_stall : most seconds of a call with rows of prompts and decoding sequences, as estimated from earlier calls; at
        least 16 rows are taken, and prompts always get half of this time
    state_bytes : memory of all states, of running sequences and cached prefixes; None: no limit
    prefix_bytes : memory of cached prefixes, within `state_bytes`; 0: prefixes are shared only between running
        sequences; None: nothing is shared
    ahead : tokens of an answer that must fit into `state_bytes` before its job gets a slot; more are allocated later
    turn : device calls by which a request (or a key) may get ahead of one that waits for a slot, each counted once per
        sequence in it; then its youngest sequence yields. Its state is kept; if there is no memory for that, it yields
        after eight times as many calls. None: sequences never yield
    queue, queue_tokens : most waiting requests, and jobs without a request, and tokens of their prompts; None: no limit
    queue_seconds : most seconds that a job may wait for its first slot; None: no limit

    Raises
    ------
    SpecError : a value is of the wrong kind or too small
    """

    slots: int = TOGETHER
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
    def of_one_caller(cls, *, slots: int, prompt_rows: int, prefix_bytes: int | None) -> Limits:
        """Return limits for a single caller that waits for all its jobs: the queue is unlimited."""
        options = {"slots": slots, "prompt_rows": prompt_rows, "prefix_bytes": prefix_bytes}
        return cls(**options, queue=None, queue_tokens=None, queue_seconds=None)

    def part(self, share: float) -> Limits:
        """Return the limits of one of several schedulers that share the memory for states."""
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
            least = 1 if one.name in ("slots", "prompt_rows", "state_bytes", "turn") else 0
            if value is None and "None" in str(one.type):
                continue
            if not is_number(value, Integral if whole else Real) or not value >= least:
                kind = "a whole number" if whole else "a number"
                raise SpecError(f"{one.name} must be {kind} of {least} or more, got {value!r}")
