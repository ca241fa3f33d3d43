"""Intake: a job that is submitted becomes the texts that the scheduler computes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from volumetric.errors import DoesNotFitError, GenerationError, SpecError
from volumetric.generate.allowed import constrained
from volumetric.generate.prompt import check_ids
from volumetric.generate.scheduling.job import Job, Ticket
from volumetric.generate.scheduling.live import Live
from volumetric.generate.transcript import Transcript
from volumetric.runtime.adapted import check_adapter

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.generate.scheduling.limits import Limits
    from volumetric.generate.scheduling.room import Room


def texts_of(job: Job, model: Model, limits: Limits, room: Room, now: float) -> Live:
    """Return the first text of a job, with the others behind it.

    Raises
    ------
    DoesNotFitError, GenerationError, SpecError : as `Scheduler.submit`
    """
    if not 1 <= job.n <= limits.seats:
        raise SpecError(f"n must be 1 to {limits.seats}, the scheduler's seats, got {job.n}")
    if not 0 < job.weight < float("inf"):
        raise SpecError(f"the weight of a job must be a number above 0, got {job.weight!r}")
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
                hint="shorten the prompt, or give states more memory",
            )
        params = dataclasses.replace(params, max_tokens=min(params.max_tokens, most - len(prompt) + 1))
    ticket = Ticket(job, 0, now)
    texts: list[Live] = []
    for choice in range(job.n):
        if choice and params.seed is not None:
            params = dataclasses.replace(params, seed=params.seed + 1)
        transcript = Transcript(model, prompt, params, job.shown)
        ticket.transcripts.append(transcript)
        form = None if job.constraint is None else job.constraint()
        constraint = constrained(params, model.eos_ids, form)
        texts.append(Live(ticket, choice, transcript, list(prompt), rows, constraint=constraint))
    texts[0].followers = texts[1:]
    return texts[0]
