"""Jobs for a scheduler, their tickets, and their events."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from volumetric.base.errors import VolumetricError
from volumetric.base.moved_modules import renamed_members
from volumetric.generate.params import SamplingParams
from volumetric.generate.token_events import Generation, TokenEvent
from volumetric.generate.transcript import Transcript

if TYPE_CHECKING:
    from volumetric.generate.constraint import Constraint
    from volumetric.generate.drafters import Drafter
    from volumetric.generate.session_state import SessionState


@renamed_members(True, held="session_state")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """A prompt to continue.

    Attributes
    ----------
    prompt : token ids, see `Model.encode`
    params : complete sampling parameters, see `Model.sampling`
    n : number of texts to generate; the prompt is computed once. With a seed they have the seeds ``seed``,
        ``seed + 1``, …
    priority : jobs with a larger one get slots first, and lose them last; equal ones by arrival
    deadline : time at which the job fails unless it has ended, in the scheduler's clock; None: never
    salt : only jobs with the same salt share cached prefixes
    adapter : name of one of the models with adapters that `Model.together` created from the scheduler's model; "": the
        scheduler's model. Jobs of different adapters share device calls, but no cached prefixes
    constraint : creates the constraint of a text, called once for each text; see `volumetric.generate.grammar`.
        Log-probabilities are then normalised over the allowed tokens
    shown : ids of special tokens that belong to the text
    drafter : creates a drafter, called once for each text, in place of the scheduler's draft
    targets : a token for each position of the prompt, whose log-probability to follow is returned
        (`Transcript.likelihoods`). All rows of the prompt are then computed, with logits
    tops : number of most likely tokens returned for each target (`Transcript.likeliest`)
    owner, weight : owner of the job for fair shares, an API key or a user, and its relative share
    request : jobs of a request take turns with those of others; jobs with None are ordered by arrival
    session_state : owns the state in which the job's only text continues, and takes it back; such a text always uses
        its drafter
    """

    prompt: Sequence[int]
    params: SamplingParams
    n: int = 1
    priority: int = 0
    deadline: float | None = None
    salt: str = ""
    adapter: str = ""
    constraint: Callable[[], Constraint] | None = None
    shown: frozenset[int] = frozenset()
    drafter: Callable[[], Drafter] | None = None
    targets: Sequence[int] | None = None
    tops: int = 0
    owner: str = ""
    weight: float = 1.0
    request: Hashable = None
    session_state: SessionState | None = None


@renamed_members(True, seated="started")
@dataclass(slots=True, eq=False)
class Ticket:
    """A submitted job. Only the scheduler writes it.

    Attributes
    ----------
    number : order of submission
    submitted : time of submission, in the scheduler's clock
    started : it has had a slot
    reported : number of its texts whose end was reported
    error : why the job failed
    cancelled : `Scheduler.cancel` was called
    paused : `Scheduler.pause` was called
    ended : there will be no more events
    """

    job: Job
    number: int
    submitted: float
    transcripts: list[Transcript] = field(default_factory=list)
    started: bool = False
    reported: int = 0
    error: VolumetricError | None = None
    cancelled: bool = False
    paused: bool = False
    ended: bool = False

    @property
    def generations(self) -> list[Generation]:
        """The generations so far of the job's texts; unfinished ones are ``cancelled``."""
        return [transcript.generation for transcript in self.transcripts]


@dataclass(slots=True, kw_only=True, eq=False)
class JobEvent:
    """An event of a job: a new token, the end of a text, or the failure of the job. It is never changed.

    Attributes
    ----------
    ticket : the job
    choice : index of the text, from 0
    token : the new token; None if a text ends without one, or the job failed
    generation : the whole text, in its last event; for a cancelled text as far as generated
    error : why the job failed, in its last event. `ExpiredError` after a deadline, `ShuttingDownError` after
        `Scheduler.drain`, `GenerationError` for logits that are NaN, or the error of the device
    """

    ticket: Ticket
    choice: int = 0
    token: TokenEvent | None = None
    generation: Generation | None = None
    error: VolumetricError | None = None
