"""What a configuration says about a family: windows, rotations, biases, and what it may not say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.tiny import TINY, copy
from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.layers import MultiHeadAttention, Parallel
from volumetric.loaders import archs, open_model
from volumetric.loaders.hf_config import Config


def build(family: str, **changes: Any) -> archs.ModelBlueprint:
    values = json.loads((TINY / family / "config.json").read_text()) | changes
    return archs.build(Config({key: value for key, value in values.items() if value is not None}, "config.json"))


def attentions(blueprint: archs.ModelBlueprint) -> list[MultiHeadAttention]:
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
        ("mixtral", {"num_local_experts": 10**9}, "cannot choose"),
        ("granitemoe", {"num_local_experts": 10**9}, "cannot choose"),
        ("smollm3", {"no_rope_layers": [1, 7]}, "other values than 0 and 1"),
        ("llama4", {"no_rope_layers": [1, 7, 0]}, "other values than 0 and 1"),
        ("llama4", {"moe_layers": [0.5]}, "moe_layers is not a list of layers"),
        ("llama4", {"layer_types": ["full_attention", "x", "x"]}, "layer_types contains other kinds"),
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


@pytest.mark.parametrize("text", ["", "[]", '{"a":', "\xff", "[" * 100_000])
def test_a_damaged_config_is_named(text: str, tmp_path: Path) -> None:
    directory = copy("llama", tmp_path)
    (directory / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"config.json"):
        open_model(str(directory))


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
