"""``echo`` of text completions: prompts come back with log-probabilities, as programs that score texts ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

from tests.generate.letters import LETTERS, letters, recurrent_letters
from tests.serve.servers import running
from volumetric.devices.reference_device import ReferenceDevice

PROMPTS = [[0, 1, 2, 5, 3], [3, 4], [7]]


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    models = {"random": recurrent_letters(ReferenceDevice()), "letters": letters()}
    with running(models) as address, address.client() as client:
        yield client


@pytest.fixture(scope="module")
def rows() -> list[np.ndarray]:
    """Log-probabilities of what follows each token of the prompts."""
    with recurrent_letters(ReferenceDevice()) as model:
        logits = [model.logits(ids).astype(np.float64) for ids in PROMPTS]
    return [x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in logits]


def _columns(told: Any) -> tuple[Any, ...]:
    return told.tokens, told.token_logprobs, told.top_logprobs, told.text_offset


@pytest.mark.thorough
@pytest.mark.parametrize("more", [0, 1, 3])
@pytest.mark.parametrize("tops", [0, 1, 3])
def test_prompts_are_scored(client: openai.OpenAI, rows: list[np.ndarray], more: int, tops: int):
    ask: Any = {"model": "random", "prompt": PROMPTS, "echo": True, "logprobs": tops, "max_tokens": more}
    answer = client.completions.create(**ask, temperature=0, extra_body={"ignore_eos": True})
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (8, 3 * more)
    for choice, ids, logs in zip(answer.choices, PROMPTS, rows, strict=True):
        told: Any = choice.logprobs
        assert choice.finish_reason == "length"
        assert len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs) == len(ids) + more
        assert "".join(told.tokens) == choice.text
        assert told.text_offset == [len("".join(told.tokens[:i])) for i in range(len(told.tokens))]
        assert choice.text.startswith("".join(LETTERS[i] for i in ids))
        assert (told.token_logprobs[0], told.top_logprobs[0]) == (None, None)
        given = [logs[at, token] for at, token in enumerate(ids[1:])]
        np.testing.assert_allclose(told.token_logprobs[1 : len(ids)], given, rtol=0, atol=1e-6)
        if more:
            assert told.token_logprobs[len(ids)] == pytest.approx(logs[-1].max(), abs=1e-6)
        for at, one in enumerate(told.top_logprobs[1 : len(ids)]):
            best = np.argsort(-logs[at], kind="stable")[:tops]
            assert list(one) == [LETTERS[i] for i in best]
            np.testing.assert_allclose(list(one.values()), logs[at][best], rtol=0, atol=1e-6)


def test_texts_come_behind_their_prompts(client: openai.OpenAI):
    ask: Any = {"model": "letters", "prompt": ["ab", "cd"], "echo": True, "max_tokens": 2, "n": 2}
    assert [one.text for one in client.completions.create(**ask).choices] == ["abcd", "abcd", "cdef", "cdef"]
    for more, ends in ((2, ["abcd", "abcd", "cdef", "cdef"]), (0, ["ab", "ab", "cd", "cd"])):
        for tops in ({}, {"logprobs": 2}):
            wanted = ask | tops | {"max_tokens": more}
            texts, reasons, tokens = [""] * 4, [""] * 4, [list[Any]() for _ in range(4)]
            for chunk in client.completions.create(**wanted, stream=True):
                choice = chunk.choices[0]
                texts[choice.index] += choice.text
                reasons[choice.index] = choice.finish_reason or ""
                told: Any = choice.logprobs
                if told is not None:
                    tokens[choice.index] += zip(*_columns(told), strict=True)
            assert (texts, reasons) == (ends, ["length"] * 4)
            for choice, streamed in zip(client.completions.create(**wanted).choices, tokens, strict=True):
                told = choice.logprobs
                whole = told and list(zip(*_columns(told), strict=True))
                assert streamed == (whole or [])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"echo": True, "suffix": "c"}, "echo and suffix exclude each other"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_what_cannot_be_echoed_is_refused(client: openai.OpenAI, asked: Any, message: str):
    with pytest.raises(openai.BadRequestError, match=message):
        client.completions.create(model="letters", prompt="ab", **asked)
