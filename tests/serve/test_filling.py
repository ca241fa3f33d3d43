"""Texts between a prefix and a suffix: prompts of the tokens that models were taught, and requests with a suffix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
import tokenizers

from tests.generate.letters import letters
from tests.serve.renamed import renamed, renamed_tokenizer
from tests.serve.servers import Address, running
from volumetric.loaders import Tokenizer
from volumetric.serve.fill_in_middle import FillInMiddle, fill_in_middle_of

FAMILIES = [
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "<|EOT|>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"),
]


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    with running({"letters": letters(), "coder": renamed(*FAMILIES[0])}) as address:
        yield address


@pytest.mark.thorough
@pytest.mark.parametrize("marks", FAMILIES)
def test_prompts_have_the_tokens_of_the_model(marks: tuple[str, ...], address: Address):
    model = address.server.serving.models["coder"].model
    tokenizer = renamed_tokenizer(model, dict(zip(FAMILIES[0], marks, strict=True)))
    filling, before, after = (
        fill_in_middle_of("coder", tokenizer),
        "def add(a, b):\n    return ",
        "\n\nprint(add(1, 2))\n",
    )
    ids = filling.prompt(before, after)
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert text == f"{marks[0]}{before}{marks[1]}{after}{marks[2]}"
    assert filling.prompt(tokenizer.encode(before), after) == ids
    assert set(filling.ends) == {*(tokenizer.token_id(mark) for mark in marks), 0}  # 0: <|endoftext|>


@pytest.mark.thorough
def test_an_answer_ends_where_the_middle_does(client: openai.OpenAI, address: Address):
    first, *_, last = FAMILIES[0]
    tokenizer = address.server.serving.models["coder"].model.tokenizer
    assert tokenizer is not None
    ask: Any = {"model": "coder", "prompt": ["a", "b"], "suffix": "c", "max_tokens": 5}
    for end in (first, last):
        answer = client.completions.create(**ask, logit_bias={str(tokenizer.token_id(end)): 100})
        assert [(one.text, one.finish_reason) for one in answer.choices] == [("", "stop")] * 2
    whole = client.completions.create(**ask)
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == 2 * 5
    assert client.completions.create(**ask | {"prompt": ""}).choices[0].finish_reason
    text = whole.choices[0].text
    pieces = [piece.choices[0] for piece in client.completions.create(**ask, stream=True)]
    assert "".join(piece.text for piece in pieces if piece.index == 0) == text
    plain = client.completions.create(model="coder", prompt="a", suffix="", max_tokens=1)
    assert plain.usage is not None
    assert plain.usage.prompt_tokens == 1  # an empty suffix is none


@pytest.mark.thorough
def test_a_model_without_such_tokens_refuses_a_suffix(client: openai.OpenAI):
    with pytest.raises(
        openai.BadRequestError, match="letters has no tokens for filling in: leave suffix out"
    ) as caught:
        client.completions.create(model="letters", prompt="a", suffix="b")
    assert caught.value.param == "suffix"


def test_a_suffix_begins_without_the_space_of_a_text():
    def build() -> tokenizers.Tokenizer:
        vocabulary = {text: i for i, text in enumerate("▁ab☺")}
        built = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
        built.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="always")
        built.add_special_tokens(["<s>"])
        built.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 4)])
        return built

    tokenizer = Tokenizer(build, special_tokens={"bos_token": "<s>"}, special_ids={}, where="spaces")
    ids = FillInMiddle(tokenizer, 10, 11, 12, ()).prompt("a", "ba")
    assert ids == [4, 10, 0, 1, 11, 2, 1, 12]
    assert FillInMiddle(tokenizer, 10, 11, 12, ()).prompt("a", " a") == [4, 10, 0, 1, 11, 0, 1, 12]
