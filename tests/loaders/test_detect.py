"""Weights without a configuration: what they are taken for, what is asked for, and that they compute the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.loaders.tiny import TINY, error_of, expected
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.detect import Assumptions, Detection, detect, detect_model
from volumetric.detect.config_values import KnownValue
from volumetric.detect.findings import collapse_findings
from volumetric.loaders import archs, open_model
from volumetric.loaders.safetensors import SafetensorsFile
from volumetric.loaders.safetensors_write import array_out, write_safetensors

HOME = Path(__file__).parents[1] / "fixtures" / "detect"
ENCODERS = HOME.parent / "hf_encoders"
HIDDEN = frozenset(
    {"num_attention_heads", "rope_parameters", "num_experts_per_tok", "sliding_window", "layer_types", "model_type"}
    | {"rotary_pct", "partial_rotary_factor", "use_sliding_window", "max_window_layers", "rope_scaling"}
    | {
        "norm_topk_prob",
        "query_pre_attn_scalar",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "max_position_embeddings",
    }
    | {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "no_rope_layers", "n_head", "hidden_act"}
    | {"activation_function", "hidden_activation", "logit_scale", "norm_epsilon", "use_parallel_residual"}
    | {"attention_chunk_size", "attn_scale", "floor_scale", "use_qk_norm", "swiglu_limit", "n_groups"}
    | {"mamba_n_groups", "mamba_norm_before_gate", "lm_head_multiplier", "mlp_multipliers", "key_multiplier"}
    | {"attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier"}
    | {"ssm_multipliers"}
    | {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling", "norm_topk_prob"}
)
"""Values of a configuration that no tensor shows."""
HIDDEN_OF_ENCODERS = frozenset(
    {"model_type", "num_attention_heads", "n_heads", "layer_norm_eps", "norm_eps", "hidden_activation", "activation"}
    | {"rope_parameters", "layer_types", "local_attention", "max_position_embeddings", "id2label"}
    | {"sliding_window", "query_pre_attn_scalar", "use_bidirectional_attention", "architectures"}
)
GIVEN: dict[str, Mapping[str, Any] | bool] = {
    "tagger": True,
    "gru": True,
    "rnn": True,
    "keras_tagger": True,
    "keras_gru": True,
    "onnx_lstm": True,
    "onnx_gru": {"linear_before_reset": 1},
    "resnet": {"input_shape": [3, 34, 30]},
    "resnet_deep": {"input_shape": [3, 32, 32]},
    "mobilenet": {"input_shape": [3, 33, 32]},
    "mobilenet_timm": {"input_shape": [3, 33, 32]},
    "perceptron": {"activation": "tanh"},
    "autoencoder": {"activation": "relu", "encoder.2.activation": "linear"},
    "encoder": {"nhead": 3, "activation": "gelu", "norm_first": False},
    "classifier": {"num_attention_heads": 2, "activation": "relu", "norm_first": True},
    "lenet": {
        "input_shape": [1, 12, 12],
        "stride": 1,
        "conv1.padding": 1,
        "conv2.padding": 0,
        "activation": "relu",
        "pool": 2,
    },
}


def hidden_of(family: str) -> dict[str, Any]:
    """What the configuration of a fixture says that its tensors do not."""
    config = json.loads((TINY / family / "config.json").read_text())
    given = {"sliding_window": None, **{name: value for name, value in config.items() if name in HIDDEN}}
    if config["model_type"].startswith("mamba"):  # the fixtures have a number of heads that nothing reads
        del given["num_attention_heads"]
    return given


def bare(family: str, home: Path) -> Path:
    """A fixture's weights alone."""
    (home / "model.safetensors").write_bytes((TINY / family / "model.safetensors").read_bytes())
    return home


def bare_with(tensors: Mapping[str, np.ndarray], home: Path) -> str:
    write_safetensors(home / "model.safetensors", {n: array_out(np.asarray(t, np.float32)) for n, t in tensors.items()})
    return str(home)


def looked_at(source: str | Path, guess: bool | Mapping[str, Any] | None = None) -> Detection:
    found = detect_model(source, guess)
    assert found is not None
    return found


def zeros(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name.replace("__", "."): np.zeros(shape, np.float32) for name, shape in shapes.items()}


FAMILIES = sorted(path.name for path in TINY.iterdir() if (path / "config.json").is_file())


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_without_its_configuration_gives_the_same_logits(family: str, tmp_path: Path) -> None:
    config = json.loads((TINY / family / "config.json").read_text())
    if config["model_type"].removesuffix("_text") not in archs.families():
        pytest.skip("a family that is not built here")
    given = hidden_of(family)
    whole = open_model(str(TINY / family))
    model = open_model(str(bare(family, tmp_path)), guess=given)
    assert model.network == whole.network
    if "logits" in expected(family):
        assert error_of(model, family) < 1e-5


@pytest.mark.parametrize("name", sorted(path.parent.name for path in ENCODERS.glob("*/config.json")))
def test_an_encoder_without_its_configuration_is_the_same_network(name: str, tmp_path: Path) -> None:
    config = json.loads((ENCODERS / name / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((ENCODERS / name / "model.safetensors").read_bytes())
    whole = open_model(str(ENCODERS / name))
    given = {name: value for name, value in config.items() if name in HIDDEN_OF_ENCODERS}
    model = open_model(str(tmp_path), guess=given)
    assert model.network == whole.network
    assert (model.head is None) == (whole.head is None)


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gpt2", "phi3", "gemma2", "gemma3", "gpt_neox"])
def test_families_are_told_by_their_tensors(family: str, tmp_path: Path) -> None:
    found = looked_at(bare(family, tmp_path))
    assert found.architecture == family
    assert found.certainty == ("possible" if family == "llama" else "certain")
    assert all(each.what for each in found.findings)


def test_families_with_the_same_tensors_are_named(tmp_path: Path) -> None:
    found = looked_at(bare("mistral", tmp_path))
    assert found.architecture == "llama"
    assert "mistral" in found.reason
    assert looked_at(tmp_path, {"model_type": "mistral"}).architecture == "mistral"


def test_what_cannot_be_known_is_asked_for_by_name(tmp_path: Path) -> None:
    home = str(bare("llama", tmp_path))
    assert set(looked_at(home).missing) == {"num_attention_heads", "rope_theta", "rope_scaling"}
    with pytest.raises(
        CheckpointError, match=r"do not determine num_attention_heads .*, rope_theta .*, rope_scaling"
    ) as caught:
        open_model(home, guess=True)
    assert caught.value.hint is not None
    assert "--assume" in caught.value.hint
    with pytest.raises(CheckpointError, match=r"no config\.json") as caught:
        open_model(home)
    assert "guess=True" in str(caught.value.hint)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "given", [{"num_attention_heads": 4}, {"num_key_value_heads": 2}, {"head_dim": 16}, {"num_heads": 4}]
)
def test_heads_follow_from_any_of_their_numbers(given: dict[str, Any], tmp_path: Path) -> None:
    home = str(bare("llama", tmp_path))
    assert error_of(open_model(home, guess=given | {"rope_theta": 1e5, "rope_scaling": None}), "llama") < 1e-5


@pytest.mark.thorough
def test_heads_and_rotary_base_by_a_table_of_frequencies(tmp_path: Path) -> None:
    file = SafetensorsFile(TINY / "llama" / "model.safetensors")
    tensors = {name: file.array(name) for name in file.entries}
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = 1e5 ** (-np.arange(8) / 8)
    found = looked_at(bare_with(tensors, tmp_path))
    assert found.missing == {}
    assert found.known["num_attention_heads"] == KnownValue(4, "8 rotary frequencies")
    assert found.known["rope_theta"].value == 1e5
    assert error_of(open_model(str(tmp_path), guess=True), "llama") < 1e-5


def test_head_norms_tell_the_heads(tmp_path: Path) -> None:
    found = looked_at(bare("qwen3", tmp_path))
    assert found.known["num_attention_heads"] == KnownValue(4, "head norms of 24")
    assert "attention, 4 heads × 24, 2 key heads" in {each.what for each in found.findings}
    assert set(found.missing) == {"rope_theta", "rope_scaling", "sliding_window"}


def test_layers_that_are_alike_are_shown_once(tmp_path: Path) -> None:
    shown = {each.path: each.repeats for each in collapse_findings(looked_at(bare("llama", tmp_path)).findings)}
    assert shown["model.layers.0…1.mlp"] == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_atention_heads": 4}, "these weights have no use for 'num_atention_heads'"),
        ("yes", "guess must be True or values by name"),
        ({1: 2}, "guess must be True or values by name"),
    ],
)
def test_bad_assumptions_are_named(given: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message):
        open_model(str(bare("llama", tmp_path)), guess=given)


@pytest.mark.thorough
@pytest.mark.parametrize("value", ["8", 3, 0, -1, 1.5, 10**30, [4], True, {"a": 1}])
def test_values_that_no_model_has_are_errors(value: Any, tmp_path: Path) -> None:
    with pytest.raises((CheckpointError, SpecError)):
        open_model(
            str(bare("llama", tmp_path)), guess={"num_attention_heads": value, "rope_theta": 1e4, "rope_scaling": None}
        )


def test_a_configuration_is_used_where_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    model = open_model(str(TINY / "llama"), guess=True)
    assert error_of(model, "llama") < 1e-5
    assert "guess is ignored" in caplog.text


def network_of(name: str, device: str = "reference") -> tuple[volumetric.Model, np.ndarray, np.ndarray]:
    record = json.loads((HOME / name / "expected.json").read_text())
    model = volumetric.load(HOME / name, device=device, guess=GIVEN[name])
    x = np.array(record["x"], np.float32 if model.network.input_shape else np.int32)
    return model, x, np.array(record["y"])


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("name", GIVEN)
def test_networks_compute_what_their_packages_do(name: str, device: str) -> None:
    model, x, y = network_of(name, device)
    np.testing.assert_allclose(model.predict(x), y, atol=2e-6)


def test_every_fixture_is_tested() -> None:
    assert {path.name for path in HOME.iterdir() if path.is_dir() and not path.name.startswith("__")} == set(GIVEN)


@pytest.mark.thorough
@pytest.mark.parametrize("home", [*sorted(HOME.glob("*/")), *(TINY / name for name in FAMILIES)], ids=lambda p: p.name)
def test_what_is_assumed_or_missing_can_be_said_by_its_name(home: Path) -> None:
    assumptions, source = Assumptions(), SafetensorsFile(home / "model.safetensors")
    found = detect(source, assumptions, str(home))
    assert {*found.assumed, *found.missing} <= assumptions.known | {"num_attention_heads"}


def test_recurrent_layers_with_peepholes_are_none_of_these(tmp_path: Path) -> None:
    file = SafetensorsFile(HOME / "onnx_lstm" / "model.safetensors")
    tensors = {name: file.array(name) for name in file.entries}
    for name, found in (("plain", True), ("peepholes", False)):
        (tmp_path / name).mkdir()
        findings = looked_at(bare_with(tensors, tmp_path / name)).findings
        assert any("LSTM" in each.what for each in findings) is found
        tensors["rnn.P"] = np.zeros((2, 9), np.float32)


def test_a_tagger_is_told_by_its_names() -> None:
    found = looked_at(HOME / "tagger")
    assert {each.what for each in found.findings} == {
        "embedding 11 × 6",
        "LSTM 6 → 5, 2 layers, both ways",
        "linear 10 → 4",
    }
    assert (found.missing, found.left_out) == ({}, {})


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("resnet", "ResNet-18"),
        ("resnet_deep", "a ResNet of 5 blocks"),
        ("mobilenet", "MobileNet-v2"),
        ("mobilenet_timm", "MobileNet-v2"),
    ],
)
def test_architectures_of_images_are_told_by_their_names(name: str, architecture: str) -> None:
    found = looked_at(HOME / name)
    assert found.architecture == architecture
    assert found.assumed["input_shape"] == "3×224×224"
    assert (found.missing, found.left_out) == ({}, {})


def test_a_stem_that_no_published_model_has_is_asked_about(tmp_path: Path) -> None:
    file = SafetensorsFile(HOME / "resnet" / "model.safetensors")
    tensors = {name: file.array(name) for name in file.entries if file.entries[name].shape}
    tensors["conv1.weight"] = tensors["conv1.weight"][:, :, 2:5, 2:5].copy()
    home = bare_with(tensors, tmp_path)
    assert set(looked_at(home).missing) == {"conv1.stride", "maxpool"}
    model = open_model(home, guess={"conv1.stride": 1, "maxpool": False})
    assert model.network.input_shape == (3, 32, 32)
    assert "max_pool2d" not in {spec.kind for spec in model.network.layers.values()}


def test_what_has_no_place_is_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tensors = zeros(
        fc1__weight=(4, 3), fc1__bias=(4,), fc2__weight=(2, 4), aux__weight=(5, 9), scale=(2, 3, 4, 5, 6, 7)
    )
    home = bare_with(tensors, tmp_path)
    assert set(looked_at(home, {"activation": "relu"}).left_out) == {"aux.weight", "scale"}
    model = open_model(home, guess={"activation": "relu"})
    assert [spec.kind for spec in model.network.layers.values()] == ["dense", "dense"]
    assert "left out: " in caplog.text
    assert "aux.weight" in caplog.text


def test_numbers_of_a_sequential_show_where_nothing_stands_between(tmp_path: Path) -> None:
    close = bare_with(zeros(**{"0__weight": (4, 3), "1__weight": (2, 4)}), tmp_path)
    assert looked_at(close).missing == {}
    apart = bare_with(zeros(**{"0__weight": (4, 3), "2__weight": (2, 4)}), tmp_path)
    assert set(looked_at(apart).missing) == {"0.activation"}


@pytest.mark.parametrize(
    ("tensors", "what"),
    [
        (zeros(x__weight=(8, 4)), "linear 4 → 8"),
        (zeros(tok_embeddings__weight=(8, 4)), "embedding 8 × 4"),
        (zeros(x__weight=(4,)), "RMSNorm of 4"),
        (zeros(x__weight=(4,), x__bias=(4,)), "LayerNorm of 4"),
        (zeros(x__gamma=(4,), x__beta=(4,)), "LayerNorm of 4"),
        (zeros(gn1__weight=(4,), gn1__bias=(4,)), "group norm of 4 channels"),
        (zeros(x__weight=(8, 3, 5)), "Conv1d 3 → 8, 5"),
        (zeros(x__weight=(8, 3, 5, 5)), "Conv2d 3 → 8, 5×5"),
        (zeros(x__weight=(8, 3, 2, 5, 5), x__bias=(8,)), "Conv3d 3 → 8, 2×5×5"),
        (zeros(deconv__weight=(8, 3, 2, 2)), "transposed convolution 8 → 3, 2×2"),
        (zeros(x__kernel=(4, 8), x__bias=(8,)), "linear 4 → 8"),
        (zeros(x__kernel=(3, 3, 4, 8)), "Conv2d 4 → 8, 3×3"),
        (zeros(x__depthwise_kernel=(3, 3, 4, 1)), "Conv2d 4 channels, depthwise, 3×3"),
        (zeros(x__running_mean=(4,), x__running_var=(4,)), "batch norm of 4 channels"),
        (zeros(x__moving_mean=(4,), x__moving_variance=(4,), x__gamma=(4,), x__beta=(4,)), "batch norm of 4 channels"),
        (zeros(x__weight_ih=(12, 2), x__weight_hh=(12, 4)), "GRU 2 → 4"),
        (zeros(x__w1__weight=(8, 4), x__w2__weight=(4, 8), x__w3__weight=(8, 4)), "gated MLP 4 → 8"),
        (zeros(x__fc1__weight=(8, 4), x__fc2__weight=(4, 8)), "MLP 4 → 8"),
        (
            zeros(x__router__weight=(3, 4), x__experts__down_proj=(3, 4, 8), x__experts__gate_up_proj=(3, 16, 4)),
            "mixture of 3 experts",
        ),
        (
            zeros(x__router__weight=(1, 4), x__experts__0__fc1__weight=(8, 4), x__experts__0__fc2__weight=(4, 8)),
            "mixture of 1 experts of MLP 4 → 8",
        ),
        (
            zeros(
                **{f"x__{n}_proj__weight": (8, 8) for n in "qkv"},
                x__out_proj__weight=(8, 8),
                x__relative_attention_bias__weight=(32, 2),
            ),
            "attention, 2 heads × 4",
        ),
        (zeros(x__Wqkv__weight=(16, 8), x__out_proj__weight=(8, 8)), "attention, 8 query and 4 key rows"),
    ],
)
def test_layers_by_names_and_shapes(tensors: dict[str, np.ndarray], what: str, tmp_path: Path) -> None:
    assert what in {each.what for each in looked_at(bare_with(tensors, tmp_path)).findings}


@pytest.mark.thorough
def test_inspect_says_what_weights_are_taken_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from volumetric.cli import main

    home = str(bare("llama", tmp_path))
    assert main(["inspect", home]) == 0
    text = capsys.readouterr().out
    assert "detected:   llama (possible)" in text
    assert "gated MLP 64 → 160" in text
    given = [
        word for text in ("num_attention_heads=4", "rope_theta=1e5", "rope_scaling=null") for word in ("--assume", text)
    ]
    assert main(["inspect", home, "--json", *given]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["missing"] == {}
    assert described["known"]["hidden_size"]["value"] == 64
    assert main(["inspect", home, "--assume", "heads"]) == 2
    assert "not of the form name=value" in capsys.readouterr().err
