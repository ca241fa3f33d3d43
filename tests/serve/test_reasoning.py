"""Reasoning is told apart from answers: in pieces of any size, by the templates of models, and through the client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import openai
import pytest

from tests.generate.letters import loaded_letters
from tests.serve.servers import running
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Model
from volumetric.loaders import ChatTemplate
from volumetric.run.device import RunOptions
from volumetric.serve.reasoning import ReasoningFormat, ReasoningReader, reasoning_format_of

DEEPSEEK = "{% if add_generation_prompt %}{{'<｜Assistant｜><think>\\n'}}{% endif %}{{ content.split('</think>')[-1] }}"
QWEN3 = "{%- if enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"


@pytest.mark.parametrize(
    ("template", "prompt", "found"),
    [
        (DEEPSEEK, "Hello<｜Assistant｜><think>\n", ReasoningFormat("<think>", "</think>", inside=True)),
        (QWEN3, "<|im_start|>assistant\n", ReasoningFormat("<think>", "</think>")),
        (QWEN3, "<|im_start|>assistant\n<think>\n\n</think>\n\n", ReasoningFormat("<think>", "</think>")),
        ("{{ messages }}", "<think>", None),
    ],
)
def test_templates_tell_how_a_model_reasons(template: str, prompt: str, found: ReasoningFormat | None):
    assert reasoning_format_of(template, prompt) == found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    ("inside", "text", "thought", "said"),
    [
        (
            False,
            "<think>\n1 < 2? </thin\n\nYes.\n</think>\n\nAh <think>.\n",
            "1 < 2? </thin\n\nYes.",
            "Ah <think>.\n",
        ),
        (False, "\n <think></think>Yes", "", "Yes"),
        (False, "<thinker> is no mark", "", "<thinker> is no mark"),
        (False, "  plain </think> text ", "", "  plain </think> text "),
        (False, "<think>\ncut off in the </th", "cut off in the </th", ""),
        (False, "<thi", "", "<thi"),
        (True, "\nI see.\n</think>\nYes", "I see.", "Yes"),
        (True, "never ends", "never ends", ""),
    ],
)
def test_reasoning_is_read_alike_in_pieces_of_any_size(size: int, inside: bool, text: str, thought: str, said: str):
    reader = ReasoningReader(ReasoningFormat("<think>", "</think>", inside))
    parts = [reader.push(text[at : at + size]) for at in range(0, len(text), size)]
    found = ["".join(pieces) for pieces in zip(*parts, reader.end(), strict=True)]
    assert found == [thought, said]


def thinker() -> Model:
    """A model that goes on in the alphabet; where ``d`` and ``g`` are marks, what is between them is reasoning."""
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{# d g #}"
    table = np.full((9, 9), -9, np.float32)
    table[np.arange(9), (np.arange(9) + 1) % 9] = 9
    loaded = replace(loaded_letters(table), chat_template=ChatTemplate({"default": template}, {}, "letters"))
    return Model(loaded, ReferenceDevice(), RunOptions(context=32))


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    patch = pytest.MonkeyPatch()
    patch.setattr("volumetric.serve.reasoning._MARKS", (("d", "g"),))
    with running({"thinker": thinker()}) as address, address.client() as client:
        yield client
    patch.undo()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("asked", "thought", "said", "tokens"), [("c", "ef", "h", 4), ("d", "ef", "h", 3), ("e", None, "fgh", 0)]
)
def test_the_client_gets_reasoning_and_answer(client, asked, thought, said, tokens):
    ask = {"model": "thinker", "messages": [{"role": "user", "content": asked}]}
    answer = client.chat.completions.create(**ask)
    message = answer.choices[0].message
    assert (message.content, getattr(message, "reasoning_content", None)) == (said, thought)
    assert answer.usage.completion_tokens_details.reasoning_tokens == tokens
    pieces = [piece.choices[0].delta for piece in client.chat.completions.create(**ask, stream=True)]
    assert "".join(piece.content or "" for piece in pieces) == said
    for name in ("reasoning", "reasoning_content"):
        assert "".join(getattr(piece, name, None) or "" for piece in pieces) == (thought or "")
    silent = client.chat.completions.create(**ask, extra_body={"include_reasoning": False}).choices[0].message
    assert (silent.content, getattr(silent, "reasoning_content", None)) == (said, None)


@pytest.mark.thorough
def test_reasoning_stays_in_the_answer_where_it_is_asked_for():
    with running({"thinker": thinker()}, reasoning="none") as address, address.client() as client:
        answer = client.chat.completions.create(model="thinker", messages=[{"role": "user", "content": "c"}])
        assert answer.choices[0].message.content == "defgh"


@pytest.mark.parametrize(
    ("inside", "text", "count"),
    [
        (False, "<think>ab</think>c", 18 - 1),
        (False, "<think>ab", 9),  # cut off: all of it
        (False, "<think>", 7),
        (False, "<thin", 0),  # not known yet, and told as it is
        (False, "abc", 0),
        (True, "ab", 2),
        (True, "ab</think>c", 10),
    ],
)
def test_tokens_of_reasoning_are_counted_also_where_it_is_cut_off(inside: bool, text: str, count: int):
    """A token a character."""
    thinking = ReasoningFormat("<think>", "</think>", inside)
    assert thinking.tokens([ord(letter) for letter in text], chr) == count
