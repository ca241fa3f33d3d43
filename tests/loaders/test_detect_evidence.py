"""Weights without a configuration: what counts as evidence, what is asked for, and what is no network at all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.loaders.test_detect import HOME, bare, bare_with, hidden_of, looked_at, zeros
from tests.loaders.tiny import TINY
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.detect.findings import collapse_findings
from volumetric.detect.layer_order import input_and_output_width
from volumetric.layers import Dense, MultiHeadAttention, Parallel, Sequential
from volumetric.loaders import archs, open_model
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import stored_rows
from volumetric.loaders.safetensors import SafetensorsFile

LLAMA = {"num_attention_heads": 4, "rope_theta": 1e5, "rope_scaling": None}


def dense(rng: Any, **sizes: tuple[int, int]) -> dict[str, np.ndarray]:
    """Matrices and biases of linear layers, ``name=(in, out)``."""
    found: dict[str, np.ndarray] = {}
    for name, (ins, outs) in sizes.items():
        path = name.replace("__", ".")
        found[f"{path}.weight"] = rng.standard_normal((outs, ins)).astype(np.float32)
        found[f"{path}.bias"] = rng.standard_normal(outs).astype(np.float32)
    return found


def chained(tensors: Mapping[str, np.ndarray], x: np.ndarray, *names: str) -> np.ndarray:
    """What linear layers make of rows, with ReLU between them."""
    for i, name in enumerate(names):
        x = x if i == 0 else np.maximum(x, 0)
        x = x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]
    return x


def llama() -> dict[str, np.ndarray]:
    file = SafetensorsFile(TINY / "llama" / "model.safetensors")
    return {name: file.array(name) for name in file.entries}


# ---- order


def test_square_matrices_have_no_order_by_the_alphabet(tmp_path, rng) -> None:
    tensors = dense(rng, zeta=(6, 6), alpha=(6, 6), mid=(6, 6))
    home, x = bare_with(tensors, tmp_path), rng.standard_normal((3, 6)).astype(np.float32)
    found = looked_at(home)
    assert found.certainty == "possible"
    assert "alpha, mid, zeta" in found.missing["order"]
    with pytest.raises(CheckpointError, match="do not determine order"):
        open_model(home, guess={"activation": "relu"})
    for order in (["zeta", "alpha", "mid"], "mid, zeta,alpha"):
        model = volumetric.load(home, device="reference", guess={"activation": "relu", "order": order})
        names = order if isinstance(order, list) else re.split(r",\s*", order)
        np.testing.assert_allclose(model.predict(x), chained(tensors, x, *names), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (["zeta", "alpha", "midd"], "there is no layer 'midd'"),
        (["zeta", "zeta"], "has the duplicate 'zeta'"),
        ([], "order must be a list of paths"),
        (3, "order must be a list of paths"),
    ],
)
def test_an_order_names_layers(order: Any, message: str, tmp_path, rng) -> None:
    home = bare_with(dense(rng, zeta=(6, 6), alpha=(6, 6), mid=(6, 6)), tmp_path)
    with pytest.raises(SpecError, match=message):
        open_model(home, guess={"activation": "relu", "order": order})


def test_widths_that_admit_one_order_give_it(tmp_path, rng) -> None:
    tensors = dense(rng, zeta=(8, 16), alpha=(16, 4), mid=(4, 2))
    home, x = bare_with(tensors, tmp_path), rng.standard_normal((3, 8)).astype(np.float32)
    found = looked_at(home, {"activation": "relu"})
    assert (found.certainty, found.missing) == ("likely", {})
    model = volumetric.load(home, device="reference", guess={"activation": "relu"})
    np.testing.assert_allclose(model.predict(x), chained(tensors, x, "zeta", "alpha", "mid"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "sure"),
    [
        ({"fc1": (6, 6), "fc2": (6, 6), "out": (6, 2)}, True),
        ({"decoder": (6, 6), "encoder": (6, 6)}, True),
        ({"b__fc": (6, 6), "a__fc": (6, 6)}, False),
        ({"fc2": (6, 6), "fc10": (6, 6)}, True),
        ({"fc": (6, 6), "out": (6, 6)}, True),
        ({"left": (6, 5), "right": (5, 6)}, False),
    ],
)
def test_names_are_evidence_where_they_say_a_place(sizes: dict[str, Any], sure: bool, tmp_path, rng) -> None:
    found = looked_at(bare_with(dense(rng, **sizes), tmp_path))
    assert ("order" not in found.missing) == sure
    assert found.certainty == ("likely" if sure else "possible")


def test_an_autoencoder_begins_with_its_encoder() -> None:
    found = looked_at(HOME / "autoencoder", {"activation": "relu"})
    assert found.certainty == "likely"
    assert found.plan is not None
    assert found.plan.network.input_shape == (12,)


def test_what_is_left_out_is_not_likely_and_must_not_be_most_of_it(tmp_path, rng) -> None:
    tensors = dense(rng, fc1=(3, 4), fc2=(4, 2)) | {"odd": np.zeros((2, 3, 4, 5, 6, 7), np.float32)}
    found = looked_at(bare_with(tensors, tmp_path), {"activation": "relu"})
    assert (found.certainty, set(found.left_out)) == ("possible", {"odd"})
    assert found.architecture
    tensors |= {f"odd{i}": tensors["odd"] for i in range(9)}
    found = looked_at(bare_with(tensors, tmp_path), {"activation": "relu"})
    assert not found.architecture
    assert "would leave out 10 of 14 tensors" in found.reason


def test_blocks_that_may_have_sums_are_asked_about(tmp_path, rng) -> None:
    sizes = {f"blocks__{i}__fc{j}": (6, 6) for i in range(2) for j in (1, 2)}
    home = bare_with(dense(rng, **sizes), tmp_path)
    assert "residual" in looked_at(home, {"activation": "relu"}).missing
    assert len(open_model(home, guess={"activation": "relu", "residual": False}).network.layers) == 4
    with pytest.raises(SpecError, match="a chain has no residual sums"):
        open_model(home, guess={"activation": "relu", "residual": True})


# ---- attention


def test_a_transformer_encoder_is_told_and_what_it_hides_is_asked_for() -> None:
    found = looked_at(HOME / "encoder")
    assert {each.what for each in found.findings} == {"transformer encoder layer of 12, MLP 12 → 20"}
    assert set(found.missing) == {"num_attention_heads", "activation", "norm_first"}
    assert found.assumed == {"causal": "false", "layer_norm_eps": "1e-05"}
    assert found.certainty == "likely"


@pytest.mark.parametrize(
    ("value", "message"),
    [({"nhead": 5}, "into 5 heads"), ({"norm_first": "yes"}, "true or false"), ({"causal": 2}, "true")],
)
def test_values_that_no_encoder_has_are_errors(value: dict[str, Any], message: str) -> None:
    given = {"nhead": 3, "activation": "gelu", "norm_first": False}
    with pytest.raises(SpecError, match=message):
        open_model(HOME / "encoder", guess=given | value)


def test_attention_of_unknown_surroundings_is_no_chain(tmp_path, rng) -> None:
    tensors = dense(rng, first=(8, 12), attn__out_proj=(12, 12), last=(12, 4))
    tensors |= zeros(attn__in_proj_weight=(36, 12), attn__in_proj_bias=(36,))
    found = looked_at(bare_with(tensors, tmp_path))
    assert not found.architecture
    assert "attention, 12 query and 12 key rows" in found.reason
    assert "fit none of the" in found.reason


def test_an_encoder_layer_with_more_in_it_is_no_chain(tmp_path) -> None:
    file = SafetensorsFile(HOME / "encoder" / "model.safetensors")
    tensors = {name: file.array(name) for name in file.entries}
    tensors["layers.0.norm3.weight"] = tensors["layers.0.norm2.weight"]
    assert not looked_at(bare_with(tensors, tmp_path)).architecture


# ---- language models


@pytest.mark.parametrize(
    ("family", "hidden", "missing"),
    [
        ("gpt_oss", {}, {"rope_theta", "rope_scaling", "sliding_window", "num_experts_per_tok"}),
        ("phi3", {"num_attention_heads"}, {"rope_theta", "rope_scaling", "sliding_window", "partial_rotary_factor"}),
        ("smollm3", {"num_attention_heads"}, {"rope_theta", "rope_scaling", "sliding_window", "no_rope_layers"}),
        ("qwen2", {"num_attention_heads"}, {"rope_theta", "rope_scaling", "sliding_window"}),
        ("gpt_neox", {"num_attention_heads"}, {"rope_theta", "rope_scaling", "rotary_pct", "use_parallel_residual"}),
    ],
)
def test_what_changes_all_numbers_is_asked_for(family: str, hidden: set[str], missing: set[str], tmp_path) -> None:
    given = {name: value for name, value in hidden_of(family).items() if name in hidden}
    found = looked_at(bare(family, tmp_path), given | {"model_type": family})
    assert set(found.missing) == missing
    assert not missing & set(found.assumed)


def test_no_scaling_is_none_where_a_family_has_one_by_default(tmp_path) -> None:
    home = str(bare("gpt_oss", tmp_path))
    given = {"rope_theta": 1e4, "rope_scaling": None, "sliding_window": 8, "num_experts_per_tok": 2}
    network = open_model(home, guess=given).network
    ropes = {
        spec.rope.scaling for spec in network.layers.values() if isinstance(spec, MultiHeadAttention) and spec.rope
    }
    assert ropes == {"none"}
    with pytest.raises(CheckpointError, match="this family has a window"):
        open_model(home, guess=given | {"sliding_window": None})


def test_loading_tells_the_conventions_that_it_takes(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    open_model(str(bare("llama", tmp_path)), guess=LLAMA)
    assert "conventional values, which guess= (--assume) changes: rms_norm_eps 1e-06, hidden_act silu" in caplog.text


def made_of(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Tensors of a family, all zeros, by its own rules."""
    blueprint = archs.build(Config(config, "made"))
    specs, rows = blueprint.network.param_specs(), stored_rows(list(blueprint.rules))
    tensors: dict[str, np.ndarray] = {}
    for rule in blueprint.rules:
        shape = specs[rule.key].shape
        shape = (rows.get(rule.source, shape[0]), *shape[1:])
        tensors[rule.source] = np.zeros(shape[::-1] if rule.transposed else shape, np.float32)
    return tensors


SIZES = {
    "rope_theta": 1e4,
    "vocab_size": 40,
    "hidden_size": 60,
    "intermediate_size": 76,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "config",
    [
        SIZES | {"model_type": "gpt_neox", "rotary_pct": 0.34},
        SIZES | {"model_type": "stablelm", "partial_rotary_factor": 0.34},
        SIZES | {"model_type": "starcoder2", "use_bias": False},
        SIZES
        | {"model_type": "lfm2", "conv_bias": True, "layer_types": ["conv", "full_attention"]}
        | {"block_auto_adjust_ff_dim": False},
    ],
    ids=lambda config: config["model_type"],
)
def test_odd_variants_are_told_by_their_tensors(config: dict[str, Any], tmp_path) -> None:
    found = looked_at(bare_with(made_of(config), tmp_path))
    assert found.architecture == config["model_type"]
    given = {name: config[name] for name in found.missing if name in config}
    plain = {"rope_scaling": None, "sliding_window": None, "use_parallel_residual": True}
    given |= {name: value for name, value in plain.items() if name in found.missing}
    assert open_model(str(tmp_path), guess=given).network == archs.build(Config(config, "made")).network


def without(name: str) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    return lambda tensors: {key: value for key, value in tensors.items() if not key.startswith(name)}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without("model.norm.weight"), "nearest is llama, but for 1 missing: model.norm.weight"),
        (without("model.layers.0."), "nearest is llama, but for 9 missing: model.layers.0.input_layernorm.weight"),
        (without("model.layers.1.mlp.up_proj"), "but for 1 missing: model.layers.1.mlp.up_proj.weight"),
        (
            lambda tensors: tensors | zeros(model__layers__1__mlp__scale=(4,)),
            "nearest is llama, but for 1 unexpected: model.layers.1.mlp.scale",
        ),
    ],
)
def test_near_misses_name_what_differs(change: Any, told: str, tmp_path) -> None:
    home = bare_with(change(llama()), tmp_path)
    found = looked_at(home)
    assert told in found.reason
    assert "olmo2" not in found.reason  # no list of all families in the place of a reason
    assert told.replace("nearest is llama", "nearest is mistral") in looked_at(home, {"model_type": "mistral"}).reason
    with pytest.raises(CheckpointError, match=re.escape(told)):
        open_model(home, guess=LLAMA)


def test_a_family_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(SpecError, match="there is no family 'lama'") as caught:
        looked_at(bare("llama", tmp_path), {"model_type": "lama"})
    assert "llama" in (caught.value.hint or "")


def test_numbers_that_are_not_there_are_not_shown(tmp_path) -> None:
    tensors = {f"fc.{i}.weight": np.zeros((3, 4), np.float32) for i in (0, 1, 2, 5, 7, 8)}
    shown = {each.path for each in collapse_findings(looked_at(bare_with(tensors, tmp_path)).findings)}
    assert shown == {"fc.0…2,5,7…8"}


def test_inspect_shows_an_adapter_and_asks_for_an_order(tmp_path, rng, capsys: pytest.CaptureFixture[str]) -> None:
    from volumetric.cli import main

    home = bare_with(dense(rng, zeta=(6, 6), alpha=(6, 6)), tmp_path)
    assert main(["inspect", home, "--json", "--assume", "order=zeta,alpha", "--assume", "activation=relu"]) == 0
    assert json.loads(capsys.readouterr().out)["certainty"] == "likely"


def test_widths_of_blocks_are_those_of_their_ends() -> None:
    one, two = Dense(in_features=3, out_features=5), Dense(in_features=5, out_features=7)
    assert input_and_output_width(Sequential(layers=(one, two))) == (3, 7)
    assert input_and_output_width(Parallel(branches=(one, one, one))) == (3, 15)
    assert input_and_output_width(Parallel(branches=(one, one), combine="add")) == (3, 5)
