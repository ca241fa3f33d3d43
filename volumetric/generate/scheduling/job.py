"""Jobs: what is submitted to a scheduler, the ticket for it, and the events that come back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from volumetric.base.errors import VolumetricError
from volumetric.generate.events import Generation, TokenEvent
from volumetric.generate.params import SamplingParams
from volumetric.generate.transcript import Transcript

if TYPE_CHECKING:
    from volumetric.generate.constraint import Constraint
    from volumetric.generate.drafting import Drafter
    from volumetric.generate.held import Held


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """A prompt to continue.

    Attributes
    ----------
    prompt : token ids, see `Model.encode`
    params : complete sampling parameters, see `Model.sampling`
    n : texts to generate; the prompt is computed once. Those of a seed have the seeds ``seed``, ``seed + 1``, …
    priority : jobs with a larger one get seats first, and give them up last; equal ones in their order of arrival
    deadline : when the job fails if it has not ended, by the scheduler's clock; None: never
    salt : only jobs of the same salt share what they have computed
    adapter : name of the model with adapters that the prompt is for, of those that `Model.together` made beside the
        scheduler's; "": the scheduler's model itself. Jobs of several run in the same calls, and share nothing else
    constraint : makes the form that a text is held to, called once for each text; see `volumetric.generate.grammar`.
        Log-probabilities are then those among the tokens that are allowed
    shown : ids of special tokens that belong to the text
    drafter : makes what proposes tokens, called once for each text, in the place of the scheduler's own draft
    targets : a token for each of the prompt; how likely it is to follow is told (`Transcript.likelihoods`). All rows of
        the prompt are computed then, with logits
    tops : how many of the likeliest tokens are told where a target is (`Transcript.likeliest`)
    owner, weight : whose share of the slots it counts in, an API key or a user, and that share relative to others
    request : jobs of a request take turns with those of others; those of None come by arrival among each other
    held : has the state that its only text goes on in, and takes it back; such a text proposes tokens whenever it can
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
    held: Held | None = None


@dataclass(slots=True, eq=False)
class Ticket:
    """A submitted job. Read by anyone, written by the scheduler.

    Attributes
    ----------
    number : by order of submission
    submitted : when, by the scheduler's clock
    seated : it has had a seat
    reported : how many of its texts have ended, and were reported
    error : why the job failed
    cancelled : somebody asked to end it
    paused : somebody asked to compute no more of it for now
    ended : no more events will come
    """

    job: Job
    number: int
    submitted: float
    transcripts: list[Transcript] = field(default_factory=list)
    seated: bool = False
    reported: int = 0
    error: VolumetricError | None = None
    cancelled: bool = False
    paused: bool = False
    ended: bool = False

    @property
    def generations(self) -> list[Generation]:
        """What was made so far of each of the job's texts; one that could go on is ``cancelled``."""
        return [transcript.generation for transcript in self.transcripts]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Event:
    """What happened to a job: a token came, one of its texts has ended, or all of it failed.

    Attributes
    ----------
    ticket : the job
    choice : which of its texts, from 0
    token : the token that came; None where a text ends without one, and where the job failed
    generation : the whole text, with its last event; cancelled ones have what was made so far
    error : why the job failed; its last event. `ExpiredError` after a deadline, `ShuttingDownError` after
        `Scheduler.drain`, `GenerationError` for logits that are not numbers, or what the device raised
    """

    ticket: Ticket
    choice: int = 0
    token: TokenEvent | None = None
    generation: Generation | None = None
    error: VolumetricError | None = None
