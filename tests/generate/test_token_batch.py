"""Batches of tokens: tokens taken together are those taken one by one, and nothing shows that they come late."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.generate.byte_tokens import END, byte_tokenizer
from tests.generate.letters import letters, loaded_letters, recurrent_letters
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Generation, Job, JobEvent, Limits, Model, SamplingParams, Scheduler
from volumetric.generate.scheduling.generation_sequence import StateBudget
from volumetric.generate.scheduling.token_batch import StepEvents, TokenBatch
from volumetric.loaders import GenerationDefaults, Tokenizer
from volumetric.run.device import RunOptions

TEXT = "é€😀a"


def bytes_model() -> Model:
    """A model that says `TEXT` again and again, a byte a token."""
    tokenizer = Tokenizer(byte_tokenizer, special_tokens={}, special_ids={}, where="bytes")
    ids = tokenizer.encode(TEXT)
    table = np.zeros((END + 1, END + 1), np.float32)
    for one, following in zip(ids, [*ids[1:], ids[0]], strict=True):
        table[one, following] = 9
    loaded = loaded_letters(table, context_length=600, generation=GenerationDefaults(eos_ids=(END,)))
    return Model(dataclasses.replace(loaded, tokenizer=tokenizer), ReferenceDevice(), RunOptions(context=600))


def texts(generations: list[Generation]) -> list[tuple[str, tuple[int, ...], str]]:
    return [(one.text, one.token_ids, one.finish_reason) for one in generations]


def drive(model: Model, prompt: list[int], params: list[SamplingParams]) -> tuple[list[JobEvent], list[StepEvents]]:
    """Run a job for each, and return all events, and the steps."""
    scheduler, steps = Scheduler(model, Limits(slots=8)), list[StepEvents]()
    for one in params:
        scheduler.submit(Job(prompt=prompt, params=one))
    while not scheduler.idle:
        steps.append(scheduler.step_together())
    return [event for step in steps for event in step.job_events()], steps


def test_tokens_of_a_batch_are_those_of_single_streams() -> None:
    model = recurrent_letters(ReferenceDevice())
    each = [model.sampling(max_tokens=9 + 2 * i, ignore_eos=i % 2 == 0) for i in range(5)]
    each += [dataclasses.replace(each[4], stop=("ab", "hh")), dataclasses.replace(each[4], stop=("c",))]
    events, steps = drive(model, [0], each)
    assert any(step.batch is not None and len(step.batch.sequences) > 1 for step in steps)
    alone = [model.generate([0], one) for one in each]
    ends = {event.ticket.number: event.generation for event in events if event.generation is not None}
    assert texts([ends[number] for number in sorted(ends)]) == texts(alone)  # pyright: ignore[reportArgumentType]
    for number, one in zip(sorted(ends), alone, strict=True):
        tokens = [event.token for event in events if event.ticket.number == number and event.token is not None]
        assert [token.token_id for token in tokens] == list(one.token_ids)
        assert [token.index for token in tokens] == list(range(len(tokens)))
        assert "".join(token.text for token in tokens) == one.text


def test_incomplete_characters_are_held_back_in_a_batch_too() -> None:
    model = bytes_model()
    events, steps = drive(model, model.encode("a"), [model.sampling(max_tokens=most) for most in (7, 40, 41, 45)])
    by_ticket: dict[int, list[JobEvent]] = {}
    for event in events:
        by_ticket.setdefault(event.ticket.number, []).append(event)
    for most, came in zip((7, 40, 41, 45), by_ticket.values(), strict=True):
        shown = [event.token.text for event in came if event.token is not None]
        assert len(shown) == most
        assert "".join(shown) == model.generate("a", max_tokens=most).text
        assert all("\ufffd" not in text for text in shown[:-1])
    assert {text for step in steps if step.batch for text in step.batch.texts} == {"", *TEXT}


def test_a_text_is_whole_whenever_it_is_read() -> None:
    """Tokens are written into the transcripts later; nobody who reads one sees that."""
    model = bytes_model()
    scheduler = Scheduler(model, Limits(slots=4))
    tickets = [scheduler.submit(Job(prompt=model.encode("a"), params=model.sampling(max_tokens=500))) for _ in range(3)]
    count = 0
    for _ in range(300):
        count += sum(event.ticket is tickets[0] and event.token is not None for event in scheduler.step())
        if count % 70 == 3:
            (generation,) = tickets[0].generations
            assert len(generation.token_ids) == generation.stats.generated_tokens == count
            assert generation.text == (TEXT * 30)[: len(generation.text)]
    scheduler.cancel(tickets[1])
    (event,) = [event for event in scheduler.step() if event.ticket is tickets[1]]
    assert event.generation is not None
    assert event.generation.finish_reason == "cancelled"
    assert len(event.generation.token_ids) == count
    scheduler.close()


@pytest.mark.parametrize("limit", [None, 2**20])
def test_memory_of_states_is_counted_as_it_grows(limit: int | None) -> None:
    model = recurrent_letters(ReferenceDevice())
    scheduler = Scheduler(model, Limits(slots=4, state_bytes=limit, prefix_bytes=None))
    room = StateBudget(model.executable.memory, limit)
    for length in (1, 3, 4):
        scheduler.submit(Job(prompt=[0] * length, params=model.sampling(max_tokens=29 - length, ignore_eos=True)))
    while not scheduler.idle:
        scheduler.step()
        counted = scheduler.stats.state_bytes
        scheduler._rounds.sync()
        assert counted == sum(room.bytes_of(sequence.fed) for sequence in scheduler._slots.all)


def test_statistics_count_the_tokens_of_batches() -> None:
    model = letters(context=40)
    scheduler = Scheduler(model, Limits(slots=4))
    for most in (5, 9, 12):
        scheduler.submit(Job(prompt=[0], params=model.sampling(max_tokens=most, ignore_eos=True)))
    while not scheduler.idle:
        scheduler.step_together()
    stats = scheduler.stats
    assert stats.generated_tokens == 26
    assert (stats.first_token.count, stats.between_tokens.count) == (3, 23)


def test_a_step_without_a_loop_has_no_batch() -> None:
    model = letters()
    events, steps = drive(model, [0], [model.sampling(logprobs=1, max_tokens=4), model.sampling(max_tokens=3)])
    mixed = [step for step in steps if isinstance(step.batch, TokenBatch)]
    assert not mixed
    assert sum(event.token is not None for event in events) == 7
