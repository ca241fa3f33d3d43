"""What is peculiar to families in GGUF files: a number for each layer, tensors of factors, experts in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loaders.tiny import TINY, copy, expected, logits, rewrite
from volumetric.base.errors import CheckpointError, UnsupportedError, VolumetricError
from volumetric.dtypes import decode
from volumetric.layers import MultiHeadAttention
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_values import LazyStrings
from volumetric.loaders.gguf_write import GGUFTensorOut, write_gguf
from volumetric.loaders.safetensors import SafetensorsFile


def rewritten(path: Path, metadata: dict[str, Any], drop: str = "") -> Path:
    """The file with other metadata (None: without the key), and without one of its tensors."""
    file = GGUFFile(path)
    kept: dict[str, Any] = {}
    for key, value in file.metadata.items():
        plain = value.decode() if isinstance(value, LazyStrings) else value
        kept[key] = np.uint32(plain) if type(plain) is int else np.float32(plain) if type(plain) is float else plain
    kept = {key: value for key, value in {**kept, **metadata}.items() if value is not None}
    out = {
        name: GGUFTensorOut(type=entry.type, shape=entry.shape, read=lambda name=name: file.raw(name))
        for name, entry in file.entries.items()
        if name != drop
    }
    write_gguf(path.with_name("other.gguf"), kept, out)
    return path.with_name("other.gguf")


def refuses(family: str, change: dict[str, Any], error: type[VolumetricError], message: str, directory: Path) -> None:
    """Expect an error of the file of a family with other metadata."""
    convert_model(TINY / family, directory / "m.gguf")
    with pytest.raises(error, match=message):
        open_model(rewritten(directory / "m.gguf", change))


def test_lfm2_lists_the_heads_of_keys_of_each_layer(tmp_path: Path) -> None:
    convert_model(TINY / "lfm2", tmp_path / "m.gguf", dtype="float16")
    file = GGUFFile(tmp_path / "m.gguf")
    kinds = open_model(TINY / "lfm2").config["layer_types"]
    heads = file.metadata["lfm2.attention.head_count_kv"]
    assert [bool(count) for count in np.asarray(heads)] == [kind == "full_attention" for kind in kinds]
    kernel = next(entry for name, entry in file.entries.items() if name.endswith("shortconv.conv.weight"))
    assert (kernel.type, len(kernel.shape)) == ("F32", 2)  # llama.cpp takes no other
    assert file.entries["token_embd.weight"].type == "F16"
    assert "token_embd_norm.weight" in file.entries


def test_lists_in_place_of_a_number(tmp_path: Path) -> None:
    convert_model(TINY / "llama", tmp_path / "m.gguf")
    same = rewritten(tmp_path / "m.gguf", {"llama.attention.head_count_kv": np.array([2, 2], np.int32)})
    assert open_model(same).network == open_model(tmp_path / "m.gguf").network
    for counts in ([2, 1], [2, 0], []):
        other = rewritten(tmp_path / "m.gguf", {"llama.attention.head_count_kv": np.array(counts, np.int32)})
        with pytest.raises(UnsupportedError, match="numbers of key heads"):
            open_model(other)


@pytest.mark.parametrize("scaled", [False, True])
def test_longrope_is_two_tensors(scaled: bool, tmp_path: Path) -> None:
    rope = dict(open_model(TINY / "phi3_longrope").config["rope_parameters"])
    given = copy("phi3_longrope", tmp_path, rope_parameters=rope | ({"attention_factor": 1.25} if scaled else {}))
    convert_model(given, tmp_path / "m.gguf")
    file = GGUFFile(tmp_path / "m.gguf")
    assert "phi3.rope.scaling.type" not in file.metadata  # these files have no word for it
    np.testing.assert_array_equal(decode(file.packed("rope_factors_long.weight")), np.float32(rope["long_factor"]))
    np.testing.assert_array_equal(decode(file.packed("rope_factors_short.weight")), np.float32(rope["short_factor"]))
    assert open_model(tmp_path / "m.gguf").network == open_model(given).network
    for lost in ("rope_factors_short.weight", "rope_factors_long.weight"):
        with pytest.raises(CheckpointError, match=f"the tensor {lost} of 2 numbers"):
            open_model(rewritten(tmp_path / "m.gguf", {}, drop=lost))


def test_other_architectures_name_longrope(tmp_path: Path) -> None:
    factors = {"rope_type": "longrope", "long_factor": [2.0] * 8, "short_factor": [1.0] * 8, "rope_theta": 1e4}
    given = copy("llama", tmp_path, rope_parameters=factors | {"original_max_position_embeddings": 64})
    convert_model(given, tmp_path / "m.gguf")
    assert GGUFFile(tmp_path / "m.gguf").metadata["llama.rope.scaling.type"] == "longrope"
    ids = expected("llama")["input_ids"]
    np.testing.assert_array_equal(logits(open_model(tmp_path / "m.gguf"), ids), logits(open_model(given), ids))
    refused = copy("qwen2", tmp_path, rope_parameters=factors)
    with pytest.raises(UnsupportedError, match="architecture 'qwen2' cannot store the rotary scaling 'longrope'"):
        convert_model(refused, tmp_path / "q.gguf")


def test_gates_and_projections_of_granite_are_apart(tmp_path: Path) -> None:
    convert_model(TINY / "granitemoe", tmp_path / "m.gguf", dtype="int8")
    file = GGUFFile(tmp_path / "m.gguf")
    pair = SafetensorsFile(TINY / "granitemoe" / "model.safetensors").array(
        "model.layers.0.block_sparse_moe.input_linear.weight"
    )
    gates, ups = np.split(pair, 2, axis=1)  # of each expert the gate before the other projection
    for name, values in (("gate", gates), ("up", ups)):
        entry = file.entries[f"blk.0.ffn_{name}_exps.weight"]
        assert (entry.type, entry.shape) == ("Q8_0", values.shape)
        found = decode(file.packed(entry.name))
        assert np.abs(found - values).max() < np.abs(values).max() / 127


@pytest.mark.thorough
def test_gains_of_heads_are_rows(tmp_path: Path) -> None:
    def deepen(tensors: dict[str, np.ndarray]) -> None:
        for name in [name for name in tensors if ".layers.1." in name]:
            tensors |= {name.replace(".1.", f".{i}.", 1): tensors[name] for i in range(2, 64)}

    directory = copy("cohere_norms", tmp_path, num_hidden_layers=64)  # as many as llama.cpp wants for these norms
    rewrite(directory, deepen)
    convert_model(directory, tmp_path / "m.gguf", dtype="float16")
    given = SafetensorsFile(TINY / "cohere_norms" / "model.safetensors")
    file = GGUFFile(tmp_path / "m.gguf")
    assert file.entries["blk.1.attn_q_norm.weight"].type == "F32"
    stored = given.array("model.layers.1.self_attn.q_norm.weight")
    np.testing.assert_array_equal(decode(file.packed("blk.63.attn_q_norm.weight")), stored)
    ours, theirs = open_model(tmp_path / "m.gguf"), open_model(directory)
    assert ours.network == theirs.network
    key = next(key for key in theirs.params if key.startswith("64.") and key.endswith("k_norm.weight"))
    np.testing.assert_array_equal(ours.params[key].values(), theirs.params[key].values())
    convert_model(TINY / "stablelm_norms", tmp_path / "s.gguf")
    assert GGUFFile(tmp_path / "s.gguf").entries["blk.0.attn_k_norm.weight"].shape == (2, 8)


def test_windows_make_an_olmo3(tmp_path: Path) -> None:
    convert_model(TINY / "olmo3", tmp_path / "m.gguf")
    plain = rewritten(tmp_path / "m.gguf", {"olmo2.attention.sliding_window": None})
    assert open_model(plain).config["model_type"] == "olmo2"
    every = rewritten(tmp_path / "m.gguf", {"olmo2.attention.sliding_window_pattern": None})
    layers = [spec for spec in open_model(every).network.layers.values() if isinstance(spec, MultiHeadAttention)]
    assert all(spec.window for spec in layers)  # the first that sees everything would be the fourth


@pytest.mark.parametrize(
    ("family", "change", "error", "message"),
    [
        ("lfm2", {"lfm2.attention.head_count_kv": np.array([2], np.int32)}, CheckpointError, "not a list of 2 numbers"),
        ("lfm2", {"lfm2.attention.head_count_kv": np.uint32(2)}, CheckpointError, "not a list of 2 numbers"),
        ("lfm2", {"lfm2.shortconv.l_cache": None}, CheckpointError, "l_cache"),
        ("lfm2", {"lfm2.attention.causal": np.bool_(False)}, UnsupportedError, "causal"),
        ("granitemoe", {"granitemoe.expert_shared_feed_forward_length": np.uint32(8)}, UnsupportedError, "shared"),
        ("olmo3", {"olmo2.attention.sliding_window_pattern": np.zeros(1, bool)}, CheckpointError, "lists 1 values"),
        ("phi3_longrope", {"phi3.rope.scaling.attn_factor": "x"}, CheckpointError, "attn_factor"),
        ("phi3_longrope", {"phi3.rope.scaling.type": "su"}, UnsupportedError, "rotary scaling 'su'"),
        ("olmo2", {"olmo2.attention.causal": None, "olmo2.attention.sliding_window": "x"}, CheckpointError, "window"),
        ("lfm2", {"lfm2.attention.causal": np.zeros(2, np.int32)}, UnsupportedError, "causal"),
        ("llama", {"llama.rope.scaling.type": np.zeros(0, np.int32)}, UnsupportedError, "rotary scaling"),
    ],
)
def test_odd_metadata_are_named(
    family: str, change: dict[str, Any], error: type[VolumetricError], message: str, tmp_path: Path
) -> None:
    refuses(family, change, error, message, tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"attention.layer_norm_epsilon": np.float32(1e-6)}, UnsupportedError, "DistilBERT with an epsilon of"),
        ({"attention.causal": np.bool_(True)}, UnsupportedError, "causal"),
    ],
)
def test_bert_without_token_types(
    change: dict[str, Any], error: type[VolumetricError], message: str, tmp_path: Path
) -> None:
    convert_model(TINY.parent / "hf_encoders" / "distilbert_masked", tmp_path / "m.gguf")
    assert open_model(tmp_path / "m.gguf").config["model_type"] == "distilbert"
    with pytest.raises(error, match=message):
        open_model(rewritten(tmp_path / "m.gguf", {f"bert.{key}": value for key, value in change.items()}))
