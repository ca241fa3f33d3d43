"""A generation in the scheduler: the tokens of its sequence, the number in its state, and their memory.

`texts_of` creates the generations of a submitted job.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import DoesNotFitError, ExpiredError, GenerationError, SpecError
from volumetric.generate.constraint import AllowedTokens, Constraint
from volumetric.generate.prompt import check_ids
from volumetric.generate.scheduling.jobs import Job, Ticket
from volumetric.generate.scheduling.limits import PREFILL_ROWS
from volumetric.generate.token_events import TopLogprobs
from volumetric.generate.transcript import Transcript
from volumetric.graph.numeric.softmax import log_likelihoods, log_softmax
from volumetric.network import OUTPUT
from volumetric.run.adapted_executable import check_adapter
from volumetric.run.device import MemoryReport, SequenceRows, State, TokenSampler
from volumetric.run.logits import argmax_tokens

if TYPE_CHECKING:
    from volumetric.base._typing import F32Array
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.generate.drafters import Drafter, DraftLength
    from volumetric.generate.scheduling.limits import Limits

BLOCK = 32
"""Rows that devices allocate at a time: a page on a GPU, two blocks of keys on a CPU."""


class StateBudget:
    """The memory of states, computed from their rows.

    Parameters
    ----------
    memory : memory of the executable
    limit : most bytes of all states; None: no limit
    """

    def __init__(self, memory: MemoryReport, limit: int | None) -> None:
        self._row, self._fixed = memory.state_per_token, memory.state_fixed
        self._block = memory.block
        self.limit = limit

    def bytes_of(self, rows: int) -> int:
        """Bytes of a growing state with `rows` rows."""
        return self._fixed + -(-rows // BLOCK) * BLOCK * self._row if rows else 0

    def bytes_kept(self, rows: int) -> int:
        """Bytes of a state with `rows` rows and no spare capacity."""
        return self._fixed + -(-rows // self._block) * self._block * self._row if rows else 0

    def rows(self, states: int) -> int | None:
        """Return how many rows each of `states` equal states may have; None: any number."""
        if self.limit is None or not self._row:
            return None
        return max(0, (self.limit // states - self._fixed) // (BLOCK * self._row) * BLOCK)


@dataclass(slots=True, eq=False)
class GenerationSequence:
    """One text of a job, from its submission to its end.

    Attributes
    ----------
    ids : tokens of the prompt, and drawn tokens
    prompt : tokens of the prompt, as an array
    state : state on the device; None before the start, or after preemption
    fed : number of tokens in the state
    passed : consecutive calls in which a later prompt was computed instead of this one
    cuts : positions at which a chunk of the prompt must end, to store a copy of the state
    followers : further texts of the job, which wait for this one's prompt
    constraint : constraint of the text
    drafter, length : drafter, and length of its drafts; None until first used
    guesses : draft tokens for the next call
    last : time of its last token, in the scheduler's clock
    """

    ticket: Ticket
    choice: int
    transcript: Transcript
    ids: list[int]
    prompt: NDArray[np.int32]
    state: State | None = None
    fed: int = 0
    passed: int = 0
    cuts: tuple[int, ...] = ()
    followers: list[GenerationSequence] = field(default_factory=list)
    constraint: Constraint | None = None
    drafter: Drafter | None = None
    length: DraftLength | None = None
    guesses: list[int] = field(default_factory=list)
    last: float = 0.0

    @property
    def likeliest(self) -> bool:
        """Whether its tokens are the arg max of the model's unchanged logits."""
        return self.constraint is None and self.transcript.params.plain_greedy

    @property
    def drawable(self) -> bool:
        """Whether a device can choose its tokens, by arg max or by drawing."""
        return self.constraint is None and self.transcript.params.logprobs is None

    @property
    def chooser(self) -> TokenSampler | Literal["logits"] | None:
        """How the device chooses its token: by arg max, by its chooser, or not at all, but the host from logits.

        The logits of a text with followers are drawn from several times.
        """
        if not self.drawable or self.followers:
            return "logits"
        if self.likeliest:
            return None
        return self.transcript.sampler.chooser

    @property
    def missing(self) -> int:
        """Number of tokens that are not in the state yet: 1 for a decoding sequence."""
        return len(self.ids) - self.fed

    @property
    def decoding(self) -> bool:
        """Whether only the token drawn last is missing."""
        return self.state is not None and self.transcript.begun and self.fed == len(self.ids) - 1

    @property
    def group(self) -> Hashable:
        """Group of texts that can share cached prefixes."""
        return self.ticket.job.adapter, self.ticket.job.salt

    @property
    def texts(self) -> int:
        """Number of texts, itself and its followers, which is the number of slots it needs."""
        return 1 + len(self.followers)

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: by priority, then by arrival."""
        return -self.ticket.job.priority, self.ticket.number

    def until_cut(self) -> int:
        """Number of missing rows, up to the next of `cuts` or the next position at which all prompts are split."""
        cuts = (cut - self.fed for cut in self.cuts if cut > self.fed)
        return min(self.missing, PREFILL_ROWS - self.fed % PREFILL_ROWS, *cuts)

    @property
    def scored(self) -> bool:
        """Whether all rows of its prompt need logits, for log-probabilities of targets."""
        return self.ticket.job.targets is not None and not self.transcript.begun

    def sequence_rows(self, rows: int) -> SequenceRows:
        """Return the next `rows` rows, followed by the draft tokens; rows from the last token on have logits."""
        ids = np.array([*self.ids[self.fed : self.fed + rows], *self.guesses], np.int32)
        logits_of = "all" if self.guesses or self.scored else "none" if rows < self.missing else "last"
        return SequenceRows(self.state, ids, logits_of, (OUTPUT,))

    def score(self, logits: F32Array) -> F32Array:
        """Store log-probabilities of the targets of the last rows fed; return the last row's logits, ``[1, V]``."""
        targets = self.ticket.job.targets
        assert targets is not None
        last, begin = logits[-1:].copy(), self.fed - len(logits)
        following = np.array(targets[begin : self.fed], np.int64)
        del self.transcript.likelihoods[begin:], self.transcript.likeliest[begin:]  # computed before a preemption
        likelihoods, likeliest = scores(logits, following, self.ticket.job.tops)
        self.transcript.likelihoods += likelihoods
        self.transcript.likeliest += likeliest
        return last

    def forget(self) -> None:
        """Drop its state, which must be recomputed."""
        self.state, self.fed, self.cuts = None, 0, ()

    def rest(self) -> None:
        """Close its drafter, as it loses its slot."""
        self.guesses = []
        if self.drafter is not None:
            self.drafter.close()
            self.drafter = None


def texts_of(job: Job, model: CompiledModel, limits: Limits, room: StateBudget, now: float) -> GenerationSequence:
    """Return the first text of a job, with the others as its followers.

    Raises
    ------
    DoesNotFitError, GenerationError, SpecError : see `Scheduler.submit`
    """
    if not 1 <= job.n <= limits.slots:
        raise SpecError(f"n must be 1 to {limits.slots}, the scheduler's slots, got {job.n}")
    if not 0 < job.weight < float("inf"):
        raise SpecError(f"the weight of a job must be a number above 0, got {job.weight!r}")
    if job.adapter:
        check_adapter(model.executable, job.adapter)
    rows = check_ids(job.prompt, model.plan)
    prompt: list[int] = rows.tolist()
    if job.targets is not None and len(check_ids(job.targets, model.plan)) != len(prompt):
        raise SpecError(f"a prompt of {len(prompt)} tokens needs as many targets, got {len(job.targets)}")
    params = job.params
    try:
        model.room_after(len(prompt))
    except GenerationError as error:
        raise DoesNotFitError(str(error), hint=error.hint) from None
    most = room.rows(job.n)
    if most is not None:
        if most < len(prompt):
            what = f"{job.n} states" if job.n > 1 else "a state"
            raise DoesNotFitError(
                f"the prompt has {len(prompt)} tokens, the memory for {what} holds {most}",
                hint="shorten the prompt, or raise the memory for states",
            )
        params = dataclasses.replace(params, max_tokens=min(params.max_tokens, most - len(prompt) + 1))
    ticket = Ticket(job, 0, now)
    texts: list[GenerationSequence] = []
    for choice in range(job.n):
        if choice and params.seed is not None:
            params = dataclasses.replace(params, seed=params.seed + 1)
        transcript = Transcript(model, prompt, params, job.shown)
        ticket.transcripts.append(transcript)
        constraint = None if job.constraint is None else job.constraint()
        if params.allowed_ids or params.min_tokens:
            constraint = AllowedTokens(params.allowed_ids, params.end_ids(model.eos_ids), params.min_tokens, constraint)
        texts.append(GenerationSequence(ticket, choice, transcript, list(prompt), rows, constraint=constraint))
    texts[0].followers = texts[1:]
    return texts[0]


def due(ticket: Ticket, patience: float | None) -> float:
    """Return the time from which a job has failed, unless it has ended, in the scheduler's clock.

    `patience` is the number of seconds that it may wait for its first slot; None: any.
    """
    until = float("inf") if ticket.job.deadline is None else ticket.job.deadline
    return until if patience is None or ticket.started else min(until, ticket.submitted + patience)


def expiry(ticket: Ticket, patience: float | None, now: float) -> ExpiredError | None:
    """Return why a job has failed by `now`, see `due`; None if it has time."""
    deadline = ticket.job.deadline
    if deadline is not None and now >= deadline:
        return ExpiredError("the request did not finish before its deadline", queued=not ticket.started)
    if patience is not None and not ticket.started and now >= ticket.submitted + patience:
        return ExpiredError(f"the request got no slot within {patience:g} s", queued=True)
    return None


def scores(logits: F32Array, tokens: np.ndarray, tops: int) -> tuple[list[float], list[TopLogprobs]]:
    """Return ``log softmax(logits)[token]`` of each row, and its `tops` most likely tokens with theirs, descending.

    Parameters
    ----------
    logits : ``[T, V]``, overwritten
    tokens : ids, ``[T]``
    tops : number of most likely tokens; 0: none, which is faster
    """
    if not tops:
        return log_likelihoods(logits, tokens).tolist(), [()] * len(tokens)
    logs = log_softmax(logits)
    likelihoods = np.take_along_axis(logs, tokens[:, None], -1)[:, 0]
    best = [argmax_tokens(row, tops) for row in logs]
    return likelihoods.tolist(), [
        tuple(zip(ids.tolist(), row[ids].tolist(), strict=True)) for ids, row in zip(best, logs, strict=True)
    ]
