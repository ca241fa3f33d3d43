"""Streams of models whose states do not grow have no end; where there is one, it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volumetric.builders import transformer
from volumetric.builders.stack import stack_of_data
from volumetric.cli import main
from volumetric.generate import load
from volumetric.generate.model_info import ENDLESS
from volumetric.loaders.byte_tokenizer import byte_tokenizer_json
from volumetric.loaders.native_checkpoint import save_native
from volumetric.loaders.native_facts import NativeFacts
from volumetric.network import Network, initialise

TRAINED_FOR = 16


def saved(home: Path, network: Network) -> str:
    facts = NativeFacts(context_length=TRAINED_FOR)
    save_native(home, network, initialise(network), facts=facts, files={"tokenizer.json": byte_tokenizer_json()})
    return str(home)


@pytest.fixture
def recurrent(tmp_path: Path) -> str:
    return saved(tmp_path / "recurrent", stack_of_data(256, pattern="XML", width=8, vocabulary=256))


@pytest.fixture
def attending(tmp_path: Path) -> str:
    return saved(tmp_path / "attending", transformer(vocabulary=256, width=8, blocks=1, heads=2))


def test_a_stack_generates_beyond_what_it_was_trained_for(recurrent: str) -> None:
    with load(recurrent, device="reference") as model:
        assert model.info.context == ENDLESS
        assert model.info.window == TRAINED_FOR
        made = model.generate("And so ", max_tokens=3 * TRAINED_FOR, temperature=0, ignore_eos=True)
        assert len(made.token_ids) == 3 * TRAINED_FOR
        assert model.perplexity("x" * 3 * TRAINED_FOR).tokens > TRAINED_FOR  # in windows as long as in training


def test_a_context_that_is_asked_for_is_kept(recurrent: str) -> None:
    with load(recurrent, device="reference", context=2 * TRAINED_FOR) as model:
        assert model.info.context == 2 * TRAINED_FOR
        made = model.generate([1, 2, 3], max_tokens=99, ignore_eos=True)
        assert (len(made.token_ids), made.finish_reason) == (2 * TRAINED_FOR - 3 + 1, "length")


@pytest.mark.thorough
def test_the_end_of_a_context_is_told(attending: str, recurrent: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--max-tokens", "40", "--device", "reference", "--ignore-eos"]
    assert main(["generate", attending, "And", *command]) == 0
    assert (
        f"the text ended because the context of {TRAINED_FOR} tokens is full; the model was" in capsys.readouterr().err
    )
    assert main(["generate", attending, "And", *command, "--context", "8", "--json"]) == 0
    captured = capsys.readouterr()
    assert "--context N holds more, up to 16" in captured.err
    told = json.loads(captured.out)
    assert (told["finish_reason"], told["context"], told["context_full"]) == ("length", 8, True)
    assert main(["generate", recurrent, "And", *command, "--json"]) == 0
    captured = capsys.readouterr()
    assert "the text ends" not in captured.err
    told = json.loads(captured.out)
    assert (len(told["token_ids"]), told["context"], told["context_full"]) == (40, None, False)
