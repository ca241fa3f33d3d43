"""Multimodal checkpoints: their text model in every spelling, and what is said of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.tiny import copy, error_of, fixture, rewrite
from volumetric.base.errors import UnsupportedError
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import convert_model


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("gemma3_vision", "a gemma3; left out: multi_modal_projector (2 tensors), vision_tower (32 tensors)"),
        ("qwen2_5_vl", "a qwen2; left out: visual (18 tensors)"),
    ],
)
def test_the_text_model_is_loaded_and_the_rest_named(name: str, rest: str, caplog: pytest.LogCaptureFixture) -> None:
    model = open_model(str(fixture(name)))
    assert error_of(model, name) < 1e-5
    assert rest in caplog.text
    assert model.generation.eos_ids == (2,)


@pytest.mark.parametrize("start", ["model.language_model.", "model.text_model."])
def test_other_spellings_of_the_names(start: str, tmp_path: Path) -> None:
    def change(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[name.replace("language_model.model.", start)] = tensors.pop(name)

    directory = copy("gemma3_vision", tmp_path)
    rewrite(directory, change)
    assert error_of(open_model(str(directory)), "gemma3_vision") < 1e-5


def test_qwen_in_its_first_spelling_has_no_text_config(tmp_path: Path) -> None:
    text = json.loads((fixture("qwen2_5_vl") / "config.json").read_text())["text_config"]
    rope = {"rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}, "rope_theta": 1e6, "rope_parameters": None}
    directory = copy("qwen2_5_vl", tmp_path, **{**text, **rope, "model_type": "qwen2_5_vl", "text_config": None})
    assert open_model(str(directory)).network == open_model(str(fixture("qwen2_5_vl"))).network


def test_llama4_beside_its_vision_model(tmp_path: Path) -> None:
    text = json.loads((fixture("llama4") / "config.json").read_text())
    outer = dict.fromkeys(text) | {"model_type": "llama4", "text_config": text, "vision_config": {}}
    directory = copy("llama4", tmp_path, **outer)
    rewrite(directory, lambda tensors: [tensors.update({f"language_model.{n}": tensors.pop(n)}) for n in list(tensors)])
    assert error_of(open_model(str(directory)), "llama4") < 1e-5


def test_whether_the_head_is_tied_can_be_seen(tmp_path: Path) -> None:
    directory = copy("qwen2_5_vl", tmp_path, tie_word_embeddings=None)
    assert error_of(open_model(str(directory)), "qwen2_5_vl") < 1e-5
    directory = copy("gemma3_vision", tmp_path, tie_word_embeddings=None)
    assert open_model(str(directory)).network == open_model(str(fixture("gemma3_vision"))).network


def test_the_text_model_is_written_as_one_of_text_alone(tmp_path: Path) -> None:
    convert_model(str(fixture("gemma3_vision")), tmp_path / "text", format="hf")
    assert json.loads((tmp_path / "text" / "config.json").read_text())["model_type"] == "gemma3"
    assert error_of(open_model(str(tmp_path / "text")), "gemma3_vision") < 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "paligemma"}, "a multimodal paligemma, whose text model is 'gemma3_text'"),
        ({"text_config": {"model_type": "gemma3n_text"}}, "whose text model is 'gemma3n_text'"),
        ({"text_config": {"model_type": ["x"]}}, "whose text model is"),
    ],
)
def test_what_is_not_read_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        open_model(str(copy("gemma3_vision", tmp_path, **changes)))
    assert "llava" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("changes", "lacking"),
    [
        (
            {"model_type": "paligemma", "text_config": {"model_type": "gemma"}},
            "bidirectional attention within the prompt",
        ),
        (
            {"model_type": "paligemma", "text_config": {"model_type": "gemma2"}},
            "bidirectional attention within the prompt",
        ),
        (
            {"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}},
            "nearest is gemma3, which lacks AltUp",
        ),
        (
            {"model_type": "gemma3n_text", "text_config": None, "vision_config": None},
            "nearest is gemma3, which lacks AltUp",
        ),
        ({"model_type": "gemma3n", "text_config": None, "vision_config": None}, "LAuReL"),
    ],
)
def test_what_known_families_would_need_is_said(changes: dict[str, Any], lacking: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=changes["model_type"]) as caught:
        open_model(str(copy("gemma3_vision", tmp_path, **changes)))
    assert lacking in (caught.value.hint or "")
