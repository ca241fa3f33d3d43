"""What `generate`, `chat` and `generate_batch` are given: the right kinds run, all others are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.generate.letters import letters
from volumetric.base.errors import CheckpointError, DeviceError, DTypeError, GenerationError, SpecError
from volumetric.generate import SamplingParams

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny" / "llama"
NO_PROMPT: list[Any] = [None, 5, 1.5, b"abc", bytearray(b"a"), [b"a"], [1.5], [True], [None], [[1]], {1, 2}, Ellipsis]
NO_PROMPT += [{"role": "user", "content": "a"}, np.array([[1, 2]]), np.array(3), np.array([1.5])]


@pytest.mark.parametrize("given", NO_PROMPT, ids=repr)
def test_what_is_no_prompt_is_named(given: Any) -> None:
    with letters() as model:
        for call in (model.generate, model.stream, model.logits, model.perplexity):
            with pytest.raises(GenerationError, match="a prompt is text, token ids or chat messages, got"):
                call(given)
        with pytest.raises(GenerationError, match="a prompt is text, token ids or chat messages, got"):
            model.generate_batch([[1], given])


def test_every_form_of_ids_is_a_prompt() -> None:
    with letters() as model:
        forms: list[Any] = [[1, 2], (1, 2), np.array([1, 2]), iter([1, 2])]
        made = [model.generate(ids, max_tokens=2).token_ids for ids in forms]
        assert made == [made[0]] * 4
        assert len(model.generate_batch(iter([[1], "b"]), max_tokens=1)) == 2  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("given", ["abc", b"abc", None, 5, {"a": 1}, {"abc"}])
def test_a_batch_is_a_list_of_prompts(given: Any) -> None:
    with letters() as model, pytest.raises(GenerationError, match="generate_batch requires a list of prompts, got"):
        model.generate_batch(given)


@pytest.mark.parametrize("given", ["abc", None, 5, [1, 2], ["abc"], {"role": "user", "content": "a"}])
def test_a_chat_is_a_list_of_messages(given: Any) -> None:
    with letters() as model, pytest.raises(GenerationError, match="messages"):
        model.chat(given)


def test_other_arguments_of_the_wrong_kind_are_named() -> None:
    wrong: Any = "abc"
    with letters() as model:
        with pytest.raises(SpecError, match="params must be SamplingParams, got str"):
            model.generate([1], wrong)
        with pytest.raises(SpecError, match="params must be SamplingParams, got int"):
            model.generate_batch([[1], [2]], [SamplingParams(), 5])  # pyright: ignore[reportArgumentType]
        with pytest.raises(SpecError, match="together"):
            model.generate_batch([[1]], together=wrong)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"source": 5}, CheckpointError),
        ({"source": None}, CheckpointError),
        ({"device": 5}, DeviceError),
        ({"dtype": 5}, DTypeError),
        ({"context": "a"}, SpecError),
        ({"context": 1.5}, SpecError),
        ({"threads": "a"}, SpecError),
        ({"threads": 1.5}, SpecError),
        ({"threads": 0}, SpecError),
        ({"chat_template": 5}, GenerationError),
        ({"chat_template": "\ud800"}, GenerationError),
    ],
)
def test_arguments_of_load_of_the_wrong_kind_are_named(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        volumetric.load(**({"source": TINY, "device": "reference"} | options))


def test_more_threads_than_cpus_are_capped_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    from volumetric.devices.cpu.cpu_count import usable_cpus

    with volumetric.load(TINY, device="cpu", threads=1000) as model:
        assert model.executable.options.threads == usable_cpus()
        assert model.device.info.details["threads"] == usable_cpus()
    assert [record.message for record in caplog.records] == [
        f"threads=1000 exceeds the {usable_cpus()} CPUs that this process may use: using {usable_cpus()}"
    ]
    assert volumetric.open_device("cpu", threads=10**6).info.details["threads"] == usable_cpus()
