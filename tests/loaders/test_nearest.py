"""Families that are not there: the nearest one, and what it lacks, from tensors and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loaders.tiny import copy, rewrite
from volumetric.base.errors import UnsupportedError
from volumetric.loaders import open_model


def hint(family: str, home: Path, change: Any = None, **config: Any) -> str:
    directory = copy(family, home, model_type="unheard", **config)
    if change:
        rewrite(directory, change)
    with pytest.raises(UnsupportedError, match="family 'unheard' is not supported") as caught:
        open_model(str(directory))
    return caught.value.hint or ""


def test_settings_tell_families_of_the_same_tensors_apart(tmp_path: Path) -> None:
    text = hint("granite", tmp_path)
    assert "nearest is granite: the names of its tensors and settings agree, but two architectures" in text
    assert text.index("model_type granite") < text.index("supported: ")
    text = hint("llama", tmp_path, scale_depth=1.4, scale_emb=12)
    assert "settings that it does not read: scale_depth, scale_emb" in text


@pytest.mark.parametrize("family", ["starcoder2", "olmo2", "qwen3_moe", "gpt2", "cohere2", "gpt_neox"])
def test_tensors_tell_the_family(family: str, tmp_path: Path) -> None:
    assert f"nearest is {family}: " in hint(family, tmp_path)


def test_tensors_that_are_more_or_less_are_named(tmp_path: Path) -> None:
    def change(tensors: dict[str, Any]) -> None:
        tensors["model.layers.1.self_attn.sinks"] = np.zeros(4, np.float32)
        for name in [name for name in tensors if "up_proj" in name]:
            del tensors[name]

    text = hint("qwen2", tmp_path, change)
    assert "nearest is qwen2: tensors that it does not have: model.layers.N.self_attn.sinks" in text
    assert "missing tensors: model.layers.N.mlp.up_proj.weight" in text


def test_nothing_like_it_is_said_plainly(tmp_path: Path) -> None:
    def change(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors["encoder." + name.replace("layers", "block")] = tensors.pop(name)

    assert hint("llama", tmp_path, change).startswith("supported: ")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"is_encoder_decoder": True}, "it is an encoder-decoder"),
        ({"image_size": 224, "patch_size": 16}, "it is an image model"),
        ({"num_mel_bins": 80}, "it is an audio model"),
        ({"alibi": True}, "biases by distance (ALiBi)"),
        ({"attn_config": {"alibi": True}}, "biases by distance (ALiBi)"),
        ({"kv_lora_rank": 64}, "latent attention (MLA)"),
        ({"alibi": False, "is_encoder_decoder": False, "kv_lora_rank": None}, None),
    ],
)
def test_the_reason_comes_before_the_list(given: dict[str, Any], reason: str | None, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        open_model(str(copy("llama", tmp_path, model_type="unheard", **given)))
    start, _, told = str(caught.value).partition("is not supported")
    assert "unheard" in start
    assert (reason or "") in told
    assert (reason is None) == (told == "")


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("iquestcoder", "transformers computes it as llama: copy the directory"),
        (
            "helium",
            "nearest is llama: the names of its tensors and settings agree, but it rotates neighbouring elements",
        ),
    ],
)
def test_families_that_share_all_names_are_told_apart(family: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        open_model(str(copy("llama", tmp_path, model_type=family)))
    assert (caught.value.hint or "").startswith(text)
