"""Names of others, adapters and archives are told from what their files hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.loaders.test_detect import bare_with, looked_at, zeros
from tests.loaders.test_detect_evidence import LLAMA, chained, dense, llama
from tests.loaders.tiny import error_of
from volumetric.base.errors import CheckpointError
from volumetric.loaders import open_model
from volumetric.loaders.name_rules import pairs_from_halves

META = (
    (r"^model\.embed_tokens", "tok_embeddings"),
    (r"^lm_head", "output"),
    (r"^model\.", ""),
    (r"self_attn\.([qkvo])_proj", r"attention.w\1"),
    ("post_attention_layernorm", "ffn_norm"),
    ("input_layernorm", "attention_norm"),
    (r"mlp\.gate_proj", "feed_forward.w1"),
    (r"mlp\.down_proj", "feed_forward.w2"),
    (r"mlp\.up_proj", "feed_forward.w3"),
)


def in_metas_words(tensors: Mapping[str, np.ndarray], heads: Mapping[str, int]) -> dict[str, np.ndarray]:
    """A Llama as Meta's own code names it, with the two rows that turn together as neighbours."""
    found: dict[str, np.ndarray] = {}
    for name, value in tensors.items():
        for pattern, theirs in META:
            name = re.sub(pattern, theirs, name)
        part = re.search(r"\.w([qk])\.weight", name)
        found[name] = value[pairs_from_halves(len(value), heads[part[1]])] if part else value
    return found


@pytest.mark.thorough
def test_metas_names_and_order_of_rows_are_read(tmp_path) -> None:
    home = bare_with(in_metas_words(llama(), {"q": 4, "k": 2}), tmp_path)
    found = looked_at(home)
    assert (found.architecture, set(found.missing)) == ("llama", {"num_attention_heads", "rope_theta", "rope_scaling"})
    assert "in Meta's names" in found.reason
    assert error_of(open_model(home, guess=LLAMA), "llama") < 1e-5


@pytest.mark.thorough
def test_a_prefix_of_all_names_does_not_matter(tmp_path) -> None:
    home = bare_with({f"base.{name}": value for name, value in llama().items()}, tmp_path)
    assert "with the prefix base" in looked_at(home).reason
    assert error_of(open_model(home, guess=LLAMA), "llama") < 1e-5


def test_llama_cpps_names_are_known(tmp_path) -> None:
    home = bare_with(
        zeros(token_embd__weight=(9, 4), blk__0__attn_q__weight=(4, 4), blk__0__ffn_up__weight=(8, 4)), tmp_path
    )
    assert "llama.cpp's names" in looked_at(home).reason
    with pytest.raises(CheckpointError) as caught:
        open_model(home, guess=True)
    assert ".gguf" in (caught.value.hint or "")


# ---- what is no model


@pytest.mark.parametrize(
    ("names", "kind", "advice"),
    [
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_{AB}.weight", "a LoRA adapter of PEFT", "--lora"),
        ("base_model.model.embed_tokens.lora_embedding_{AB}", "a LoRA adapter of PEFT", "--lora"),
        ("lora_unet_down_blocks_0.lora_{du}.weight", "a LoRA adapter in kohya's names", "to PEFT's format"),
        ("model.layers.0.self_attn.q_proj.lora_{ab}", "a LoRA adapter of mlx-lm", "to PEFT's format"),
    ],
)
def test_adapters_are_told_from_models(names: str, kind: str, advice: str, tmp_path) -> None:
    start, letters, end = re.split(r"[{}]", names)
    spelled = ("down", "up") if letters == "du" else letters
    tensors = {f"{start}{one}{end}": np.zeros(s, np.float32) for one, s in zip(spelled, ((2, 4), (4, 2)), strict=True)}
    home = bare_with(tensors, tmp_path)
    found = looked_at(home)
    assert (found.architecture, found.certainty) == ("", "certain")
    assert kind in found.reason
    for guess in (None, True):
        with pytest.raises(CheckpointError, match=kind) as caught:
            open_model(home, guess=guess)
        assert advice in (caught.value.hint or "")


@pytest.mark.parametrize("compress", [np.savez, np.savez_compressed])
def test_archives_of_arrays_are_read(compress: Any, tmp_path, rng) -> None:
    tensors, x = dense(rng, fc1=(8, 16), fc2=(16, 2)), rng.standard_normal((3, 8)).astype(np.float32)
    compress(tmp_path / "weights.npz", **tensors, note=np.array(["text"]))
    model = volumetric.load(tmp_path / "weights.npz", device="reference", guess={"activation": "relu"})
    np.testing.assert_allclose(model.predict(x), chained(tensors, x, "fc1", "fc2"), rtol=1e-5, atol=1e-5)


def test_archives_that_are_damaged_or_hold_objects_are_refused(tmp_path) -> None:
    np.savez(tmp_path / "objects.npz", a=np.array([{}], object))
    (tmp_path / "short.npz").write_bytes(b"PK\x03\x04 and no more")
    for name, message in (
        ("objects.npz", "Python objects, which are pickles"),
        ("short.npz", "not an archive of arrays"),
    ):
        with pytest.raises(CheckpointError, match=message):
            open_model(tmp_path / name, guess=True)


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("state.pkl", "is a pickle, which can run code", "state_dict()"),
        ("state.joblib", "never read", "numpy.savez"),
        ("one.npy", "not a model file", "a single array without a name"),
        ("model.onnx", "is no ONNX file", "export it again"),
        ("model.xyz", "not a model file", ".safetensors"),
    ],
)
def test_other_files_are_named(name: str, message: str, hint: str, tmp_path) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04")
    with pytest.raises(CheckpointError, match=message) as caught:
        open_model(tmp_path / name)
    assert hint in (caught.value.hint or "")
