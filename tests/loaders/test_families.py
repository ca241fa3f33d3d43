"""Families: tiny models of each give the logits of transformers, and checkpoints that do not fit are named."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from volumetric.dtypes import Scheme
from volumetric.errors import CheckpointError, DTypeError, UnsupportedError
from volumetric.layers import MultiHeadAttention, Parallel
from volumetric.loaders import LoadedModel, archs, open_model
from volumetric.loaders.hf_config import Config
from volumetric.loaders.safetensors import SafetensorsFile
from volumetric.loaders.safetensors_write import array_out, write_safetensors
from volumetric.runtime.lower import lower
from volumetric.runtime.reference import ReferenceDevice

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
FAMILIES = (
    "llama",
    "mamba",
    "mamba_double",
    "mamba2",
    "falcon_h1",
    "falcon_h1_norm",
    "llama_untied_rope3",
    "mistral",
    "qwen2",
    "qwen3",
    "qwen3_yarn",
    "smollm3",
    "gpt2",
    "phi3",
    "phi3_longrope",
    "gemma",
    "gemma2",
    "gemma3",
    "gpt_neox",
    "gpt_oss",
    "cohere",
    "cohere2",
    "cohere_norms",
    "granite",
    "lfm2",
    "llama4",
    "llama4_sparse",
    "granitemoe",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "qwen3_moe_free",
    "olmo2",
    "olmo3",
    "stablelm",
    "stablelm_norms",
    "stablelm_parallel",
    "starcoder2",
)


def fixture(name: str) -> Path:
    """Directory of a tiny model."""
    return next(home / name for home in (TINY, TINY.with_name("hf_multimodal")) if (home / name).is_dir())


def expected(family: str) -> dict[str, Any]:
    return json.loads((fixture(family) / "expected.json").read_text())


def logits(model: LoadedModel, ids: list[int]) -> np.ndarray:
    run = ReferenceDevice().compile(lower(model.network, model.context_length), model.params)
    return run.forward(run.new_state(), np.array(ids, np.int32), last_only=False)


def error_of(model: LoadedModel, family: str) -> float:
    """Largest difference from the logits of transformers, relative to the largest of those."""
    record = expected(family)
    reference = np.array(record["logits"])
    return float(
        np.abs(logits(model, record["input_ids"])[record["positions"]] - reference).max() / np.abs(reference).max()
    )


def copy(family: str, home: Path, **config: Any) -> Path:
    """Copy of a fixture with some values of its configuration changed; None removes one."""
    target = home / family
    target.mkdir(parents=True)
    for path in fixture(family).iterdir():
        shutil.copyfile(path, target / path.name)
    values = json.loads((target / "config.json").read_text()) | config
    (target / "config.json").write_text(json.dumps({key: v for key, v in values.items() if v is not None}))
    return target


def rewrite(directory: Path, change: Any) -> None:
    """Apply `change` to the dictionary of a fixture's tensors."""
    file = SafetensorsFile(directory / "model.safetensors")
    tensors = {name: file.array(name).copy() for name in file.entries}
    change(tensors)
    write_safetensors(directory / "model.safetensors", {name: array_out(value) for name, value in tensors.items()})


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
    first, second = store.stored(), store.stored()
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
        assert store.stored().scheme == store.scheme
        np.testing.assert_array_equal(store.stored().payload, kept[key].converted(store.scheme)[0].payload)


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


def build(family: str, **changes: Any) -> archs.Blueprint:
    values = json.loads((TINY / family / "config.json").read_text()) | changes
    return archs.build(Config({key: value for key, value in values.items() if value is not None}, "config.json"))


def attentions(blueprint: archs.Blueprint) -> list[MultiHeadAttention]:
    return [spec for spec in blueprint.network.layers.values() if isinstance(spec, MultiHeadAttention)]


def test_windows() -> None:
    assert [a.window for a in attentions(build("mistral"))] == [16, 16]
    assert [a.window for a in attentions(build("mistral", sliding_window=None))] == [None, None]
    assert [a.window for a in attentions(build("qwen2", sliding_window=8))] == [None, None]
    on = {"sliding_window": 8, "use_sliding_window": True}
    assert [a.window for a in attentions(build("qwen2", **on, layer_types=None, max_window_layers=1))] == [None, 8]
    kinds = ["sliding_attention", "full_attention"]
    assert [a.window for a in attentions(build("qwen3", **on, layer_types=kinds))] == [8, None]


def test_gemma_windows_without_a_list_of_layers() -> None:
    gemma2 = attentions(build("gemma2", layer_types=None, num_hidden_layers=4))
    assert [a.window for a in gemma2] == [16, None, 16, None]
    gemma3 = attentions(build("gemma3", layer_types=None, num_hidden_layers=7))
    assert [a.window is None for a in gemma3] == [False] * 5 + [True, False]
    assert [a.rope.base for a in gemma3[4:6] if a.rope] == [1e4, 1e6]


def test_gpt_neox_in_its_first_spelling() -> None:
    now = build("gpt_neox")
    assert build("gpt_neox", rope_parameters=None, rotary_pct=0.25, rotary_emb_base=10_000).network == now.network
    assert build("gpt_neox", rope_parameters=None).network == now.network  # these are the defaults
    rope = attentions(now)[0].rope
    assert rope is not None
    assert (rope.dim, rope.base) == (4, 10_000.0)


def test_gpt_neox_can_stand_in_a_row() -> None:
    assert {link.kind for link in build("gpt_neox").network.links} == {"activation"}
    assert build("gpt_neox", use_parallel_residual=False).network.links == ()


def test_smollm3_leaves_out_rotations() -> None:
    assert [a.rope is None for a in attentions(build("smollm3"))] == [False, True]
    every = build("smollm3", no_rope_layers=None, num_hidden_layers=8, layer_types=None)
    assert [i for i, a in enumerate(attentions(every)) if a.rope is None] == [3, 7]


def test_linear_scaling_and_partial_rotation() -> None:
    rope = attentions(build("llama", rope_parameters=None, rope_scaling={"type": "linear", "factor": 4}))[0].rope
    assert rope is not None
    assert (rope.scaling, rope.factor, rope.base) == ("linear", 4.0, 10_000.0)
    half: dict[str, Any] = {"rope_theta": 1e4, "partial_rotary_factor": 0.5}
    for family, turning in (("phi3", 0.5), ("stablelm", 0.5), ("llama", 1.0), ("qwen3", 1.0)):
        attention = attentions(build(family, rope_parameters=half, partial_rotary_factor=0.5))[0]
        assert attention.rope is not None
        assert attention.rope.dim == turning * attention.width  # as in transformers, where few families ask for it


def test_yarn_and_longrope_take_their_factor_from_the_two_contexts() -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "original_max_position_embeddings": 64}
    rope = attentions(build("llama", rope_parameters=yarn))[0].rope
    assert rope is not None
    assert (rope.factor, rope.attention_factor) == (4.0, 0.1 * math.log(4) + 1)
    deepseek = yarn | {"factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}
    assert [a.rope.attention_factor for a in attentions(build("llama", rope_parameters=deepseek)) if a.rope] == [1, 1]
    long = attentions(build("phi3_longrope"))[0].rope
    assert long is not None
    assert (long.dim, long.attention_factor) == (4, math.sqrt(1 + math.log(256 / 8) / math.log(8)))


def test_dynamic_scaling_makes_the_context_longer() -> None:
    blueprint = build("llama", rope_parameters=None, rope_scaling={"type": "dynamic", "factor": 2.0})
    assert blueprint.context_length == 512
    rope = attentions(blueprint)[0].rope
    assert rope is not None
    assert (rope.scaling, rope.original_context, rope.context) == ("dynamic", 256, 0)


def test_biases_follow_the_configuration() -> None:
    spec = attentions(build("llama", attention_bias=True))[0]
    assert (spec.qkv_bias, spec.out_bias) == (True, True)
    assert (attentions(build("qwen2"))[0].qkv_bias, attentions(build("qwen2"))[0].out_bias) == (True, False)


def test_qwen3_has_a_head_width_of_its_own() -> None:
    assert attentions(build("qwen3", head_dim=None))[0].width == 128


LONGROPE = {"rope_type": "longrope", "short_factor": [1, 1], "long_factor": [2, 2]}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("llama", {"model_type": None}, "model_type is missing"),
        ("llama", {"hidden_size": None}, "hidden_size is missing"),
        ("llama", {"hidden_size": "64"}, "hidden_size is '64', expected a whole number"),
        ("llama", {"hidden_size": True}, "hidden_size is 'True'"),
        ("llama", {"hidden_size": -64}, "hidden_size is '-64'"),
        ("llama", {"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ("llama", {"num_attention_heads": 3, "num_key_value_heads": 2}, "3 heads cannot share 2"),
        ("llama", {"rms_norm_eps": "small"}, "rms_norm_eps"),
        ("llama", {"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ("llama", {"hidden_act": "mish"}, "hidden_act is 'mish', expected one of silu"),
        ("llama", {"tie_word_embeddings": 1}, "tie_word_embeddings is '1', expected true or false"),
        ("llama", {"rope_parameters": []}, "rope_parameters is '\\[\\]', expected an object"),
        ("llama", {"rope_parameters": {"rope_theta": 0}}, "base must be a positive"),
        ("llama", {"head_dim": 15}, "dim must be even"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["x", "y"]}, "other kinds"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "layer_types": [{}, []]}, "other kinds"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["x"]}, "a list of 2 values"),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}, "max_position_embeddings": 0}, "max_position_embeddings"),
        (
            "phi3_longrope",
            {"rope_parameters": {"rope_type": "longrope", "short_factor": [1], "long_factor": []}},
            "short",
        ),
        ("phi3_longrope", {"rope_parameters": LONGROPE | {"short_factor": "x"}}, "a list of numbers"),
        ("granite", {"logits_scaling": 0}, "logits are divided by it"),
        ("mixtral", {"num_experts_per_tok": 5}, "5 of 4 experts"),
        ("mixtral", {"num_local_experts": 10**9}, "cannot be chosen"),
        ("granitemoe", {"num_local_experts": 10**9}, "cannot be chosen"),
        ("smollm3", {"no_rope_layers": [1, 7]}, "other values than 0 and 1"),
        ("llama4", {"no_rope_layers": [1, 7, 0]}, "other values than 0 and 1"),
        ("llama4", {"moe_layers": [0.5]}, "moe_layers is no list of layers"),
        ("llama4", {"layer_types": ["full_attention", "x", "x"]}, "layer_types holds other kinds"),
        ("llama4", {"attn_temperature_tuning": "much"}, "attn_temperature_tuning is 'much'"),
        ("llama4", {"num_experts_per_tok": 4}, "4 of 3 experts"),
        ("gpt2", {"n_embd": 63}, "does not divide into 4 heads"),
    ],
)
def test_bad_configurations_are_named(family: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        build(family, **changes)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("llama", {"model_type": "t5"}, "family 't5' is not supported"),
        ("llama", {"model_type": "../llama"}, "is not supported"),
        ("llama", {"model_type": "chain"}, "family 'chain' is not supported"),
        ("llama", {"rope_parameters": {"rope_type": "ntk", "factor": 4}}, "scaling 'ntk' is not supported"),
        ("gemma3", {"model_type": "gemma3", "text_config": {"hidden_size": 64}}, "a multimodal gemma3"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
    ],
)
def test_unsupported_variants_are_named(family: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        build(family, **changes)
    assert caught.value.hint


def test_llama4_as_published_configurations_have_it() -> None:
    published = {"no_rope_layers": [], "layer_types": None, "moe_layers": None, "attn_temperature_tuning": 4}
    found = attentions(build("llama4", num_hidden_layers=4, **published))
    assert [spec.chunk for spec in found] == [16, 16, 16, None]
    assert [spec.qk_norm for spec in found] == [True, True, True, False]
    assert [spec.temperature_scale for spec in found] == [0, 0, 0, 0.4]
    assert all(spec.rope is None for spec in found[3:])


def test_every_family_has_a_fixture() -> None:
    configs = [TINY / name / "config.json" for name in FAMILIES]
    configs += TINY.with_name("hf_encoders").glob("*/config.json")  # tests/loaders/test_encoders.py
    tested = {json.loads(path.read_text())["model_type"] for path in configs}
    assert {name.removesuffix("_text").replace("-", "_") for name in tested} == set(archs.families())


@pytest.mark.parametrize("text", ["", "[]", '{"a":', "\xff", "[" * 100_000])
def test_a_damaged_config_is_named(text: str, tmp_path: Path) -> None:
    directory = copy("llama", tmp_path)
    (directory / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"config.json"):
        open_model(str(directory))


def test_weights_without_configuration_are_named(tmp_path: Path) -> None:
    directory = copy("llama", tmp_path)
    (directory / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has weights and no config.json"):
        open_model(str(directory))


def test_a_weight_file_opens_with_the_files_beside_it(tmp_path: Path) -> None:
    directory = copy("llama", tmp_path)
    assert error_of(open_model(str(directory / "model.safetensors")), "llama") < 1e-5


def test_eos_is_a_union(tmp_path: Path) -> None:
    directory = copy("llama", tmp_path, eos_token_id=2)
    (directory / "generation_config.json").write_text(
        '{"eos_token_id": [5, 7], "do_sample": true, "temperature": 0.6, "top_k": 40}'
    )
    (directory / "tokenizer.json").write_text("{}")
    added = {"9": {"content": "<|im_end|>"}, "11": {"content": "</end>"}, "400": {"content": "<|eot_id|>"}}
    config = {"added_tokens_decoder": added, "eos_token": "</end>", "chat_template": "{{ m }}<|im_end|><|eot_id|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    generation = open_model(str(directory)).generation
    assert generation.eos_ids == (2, 5, 7, 9, 11)  # 400 is no row of the embedding
    assert (generation.do_sample, generation.temperature, generation.top_k) == (True, 0.6, 40)


@pytest.mark.parametrize(
    "values",
    [{"eos_token_id": "2"}, {"eos_token_id": [2, None]}, {"eos_token_id": 320}, {"temperature": "hot"}, {"top_k": 1.5}],
)
def test_bad_generation_defaults_are_named(values: dict[str, Any], tmp_path: Path) -> None:
    directory = copy("llama", tmp_path)
    (directory / "generation_config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=next(iter(values)).replace("eos_token_id", "id")):
        open_model(str(directory))


def test_two_experts_are_chosen_unless_a_configuration_says_how_many(tmp_path: Path) -> None:
    """The default of transformers, which files leave out."""
    model = open_model(copy("mixtral", tmp_path, num_experts_per_tok=None))
    gates = [spec.gate for spec in model.network.layers.values() if isinstance(spec, Parallel)]
    assert gates
    assert {gate and gate.top_k for gate in gates} == {2}
