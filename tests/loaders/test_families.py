"""Families: tiny models of each give the logits of transformers, and checkpoints that do not fit are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.loaders.tiny import FAMILIES, TINY, copy, error_of, rewrite
from volumetric.base.errors import CheckpointError, DTypeError
from volumetric.dtypes import Scheme
from volumetric.loaders import archs, open_model


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family: str) -> None:
    model = open_model(str(TINY / family))
    assert error_of(model, family) < 1e-5
    assert model.context_length == 256
    assert model.generation.eos_ids == (2,)
    assert model.generation.bos_id == 1
    assert model.name == family
    assert (model.tokenizer, model.chat_template) == (None, None)


def test_packed_experts_stay_packed() -> None:
    model = open_model(str(TINY / "gpt_oss_mxfp4"))
    assert error_of(model, "gpt_oss_mxfp4") < 1e-5
    assert {str(model.params[f"1.0.0.4/3/{part}.weight"].scheme) for part in ("gate", "up", "down")} == {"mxfp4"}
    assert "quantization_config" not in model.config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda name, value: {name: value.astype(np.int8)}, "_blocks' is I8, expected U8"),
        (lambda name, value: {name: value[..., :8].copy()}, "expected blocks of 16 bytes"),
        (lambda name, value: {name: value[:, :-1].copy()}, "_scales' has shape"),
        (lambda name, value: {name: value, name.replace("_blocks", ""): value}, "unexpected"),
        (lambda name, value: {}, "missing"),
    ],
)
def test_damaged_stacks_of_blocks_are_named(change: Any, message: str, tmp_path: Path) -> None:
    directory = copy("gpt_oss_mxfp4", tmp_path)
    name = "model.layers.1.mlp.experts.down_proj_blocks"
    rewrite(directory, lambda tensors: tensors.update(change(name, tensors.pop(name))))
    with pytest.raises(CheckpointError, match=message):
        open_model(str(directory))


@pytest.mark.parametrize(
    "change",
    [
        lambda name, tensors: tensors.pop(name),
        lambda name, tensors: tensors.update({name: tensors[name][:-1]}),
        lambda name, tensors: tensors.update({name: tensors[name].astype(np.float16)}),
        lambda name, tensors: tensors.update({name.replace(".1.weight", ".7.weight"): tensors.pop(name)}),
        lambda name, tensors: tensors.update({name.replace(".1.weight", ".4.weight"): tensors[name]}),
    ],
)
def test_damaged_norms_of_heads_are_named(change: Any, tmp_path: Path) -> None:
    directory = copy("stablelm_norms", tmp_path)
    name = "model.layers.0.self_attn.q_layernorm.norms.1.weight"
    rewrite(directory, lambda tensors: change(name, tensors))
    with pytest.raises(CheckpointError, match=r"layers\.0\.self_attn\.q_layernorm\.norms"):
        open_model(str(directory))


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_read_when_asked_for(family: str) -> None:
    model = open_model(str(TINY / family))
    store = next(iter(model.params.values()))
    first, second = store.packed(), store.packed()
    store.release()
    assert first is not second
    np.testing.assert_array_equal(first.payload, second.payload)


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_models_written_in_the_old_spelling_are_the_same(family: str, tmp_path: Path) -> None:
    config = json.loads((TINY / family / "config.json").read_text())
    more: dict[str, Any] = {}
    rope = config.get("rope_parameters", {})
    if "sliding_attention" in rope:
        local, rope = rope["sliding_attention"], rope["full_attention"]
        more = {"rope_local_base_freq": local["rope_theta"]}
    if family == "olmo3":
        more["layer_types"] = config["layer_types"]  # every fourth layer sees everything, and this model has two
    if family in ("gemma3", "cohere2"):
        more["sliding_window_pattern"] = 2
    if family == "lfm2":
        more["full_attn_idxs"] = [i for i, kind in enumerate(config["layer_types"]) if kind == "full_attention"]
    scaling = {key: value for key, value in rope.items() if key not in ("rope_theta", "rope_type")}
    old: dict[str, Any] = {"rope_parameters": None, "layer_types": None, "dtype": None, "torch_dtype": "float32"}
    old |= more
    if rope:
        old |= {
            "rope_theta": rope["rope_theta"],
            "rope_scaling": {"type": rope["rope_type"], **scaling} if scaling else None,
        }
    assert open_model(str(copy(family, tmp_path, **old))).network == open_model(str(TINY / family)).network


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_names_without_the_prefix_of_the_model_class(family: str, tmp_path: Path) -> None:
    def strip(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[name.removeprefix("model.").removeprefix("transformer.")] = tensors.pop(name)

    directory = copy(family, tmp_path)
    rewrite(directory, strip)
    assert error_of(open_model(str(directory)), family) < 1e-5


@pytest.mark.parametrize(
    ("family", "buffer"),
    [
        ("llama", "model.layers.0.self_attn.rotary_emb.inv_freq"),
        ("gpt2", "transformer.h.1.attn.bias"),
        ("gpt2", "h.0.attn.masked_bias"),
    ],
)
def test_known_buffers_are_ignored_by_rule(family: str, buffer: str, tmp_path: Path) -> None:
    directory = copy(family, tmp_path)
    rewrite(directory, lambda tensors: tensors.update({buffer: np.ones(3, np.float32)}))
    open_model(str(directory))


def test_missing_and_unexpected_tensors_are_listed(tmp_path: Path) -> None:
    def change(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            if ".layers.1." in name:
                tensors["extra." + name] = tensors.pop(name)

    directory = copy("llama", tmp_path)
    rewrite(directory, change)
    with pytest.raises(CheckpointError, match=r"9 missing: .*layernorm.*and 4 more; 9 unexpected: extra") as caught:
        open_model(str(directory))
    assert caught.value.hint == "strict=False loads what fits"


def test_not_strict_loads_what_fits_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def change(tensors: dict[str, Any]) -> None:
        tensors["stray"] = tensors.pop("model.norm.weight")

    directory = copy("llama", tmp_path)
    rewrite(directory, change)
    model = open_model(str(directory), strict=False)
    assert "1 missing: model.norm.weight; 1 unexpected: stray" in caplog.text
    np.testing.assert_array_equal(model.params["3.0.0.0/weight"].values(), np.ones(64))


@pytest.mark.parametrize(
    ("family", "name"), [("llama", "model.norm.weight"), ("gpt2", "transformer.h.0.attn.c_attn.weight")]
)
@pytest.mark.parametrize("strict", [True, False])
def test_wrong_shapes_are_always_errors(family: str, name: str, strict: bool, tmp_path: Path) -> None:
    directory = copy(family, tmp_path)
    rewrite(directory, lambda tensors: tensors.update({name: tensors[name][..., :32].copy()}))
    with pytest.raises(CheckpointError, match=r"1 wrong shape: .*has shape \[(64, )?32\], expected \[(64|64, 192)\]"):
        open_model(str(directory), strict=strict)


def test_untied_models_need_their_head(tmp_path: Path) -> None:
    directory = copy("llama", tmp_path, tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"1 missing: lm_head.weight"):
        open_model(str(directory))


def test_dtype_spares_gains_and_keeps_embeddings_at_eight_bits() -> None:
    kept = open_model(str(TINY / "llama")).params
    params = open_model(str(TINY / "llama"), dtype="int4").params
    schemes = {key: str(store.scheme) for key, store in params.items()}
    assert schemes["0.0.0.0/weight"] == "int8:g32"
    assert schemes["1.0.0.1/q.weight"] == "int4:g32"
    assert schemes["1.0.0.0/weight"] == "float32"
    for key, store in params.items():
        assert store.packed().scheme == store.scheme
        np.testing.assert_array_equal(store.packed().payload, kept[key].convert(store.scheme)[0].payload)


def test_an_untied_head_keeps_eight_bits_too() -> None:
    params = open_model(str(TINY / "llama_untied_rope3"), dtype="ternary").params
    assert str(params["3.0.0.1/weight"].scheme) == "int8:g32"


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "int8"])
def test_eight_bits_and_more_apply_to_all_matrices(dtype: str) -> None:
    params = open_model(str(TINY / "gpt2"), dtype=dtype).params
    matrices = {store.scheme for store in params.values() if len(store.shape) > 1}
    assert matrices == {Scheme.parse(dtype)}
    assert error_of(open_model(str(TINY / "gpt2"), dtype=dtype), "gpt2") < 0.2


def test_bfloat16_checkpoints_stay_so(tmp_path: Path) -> None:
    directory = copy("qwen2", tmp_path)
    rewrite(directory, lambda tensors: tensors.update({n: t.astype(ml_dtypes.bfloat16) for n, t in tensors.items()}))
    model = open_model(str(directory))
    assert {str(store.scheme) for store in model.params.values()} == {"bfloat16"}
    assert error_of(model, "qwen2") < 2e-2


def test_unknown_dtype_is_an_error() -> None:
    with pytest.raises(DTypeError):
        open_model(str(TINY / "llama"), dtype="int5")


def test_every_family_has_a_fixture() -> None:
    configs = [TINY / name / "config.json" for name in FAMILIES]
    configs += TINY.with_name("hf_encoders").glob("*/config.json")  # tests/loaders/test_encoders.py
    tested = {json.loads(path.read_text())["model_type"] for path in configs}
    assert {name.removesuffix("_text").replace("-", "_") for name in tested} == set(archs.families())


def test_weights_without_configuration_are_named(tmp_path: Path) -> None:
    directory = copy("llama", tmp_path)
    (directory / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has weights, but no config.json"):
        open_model(str(directory))


def test_a_weight_file_opens_with_the_files_beside_it(tmp_path: Path) -> None:
    directory = copy("llama", tmp_path)
    assert error_of(open_model(str(directory / "model.safetensors")), "llama") < 1e-5
