"""GGUF files of models with state-space layers, and of Llama 4: as llama.cpp reads them, and nothing else."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.loaders.state_models import CASES, IDS, POSITIONS, source, written
from tests.loaders.test_gguf_families import refuses
from tests.loaders.tiny import TINY, copy, logits, rewrite
from volumetric.base.errors import CheckpointError, UnsupportedError, VolumetricError
from volumetric.dtypes import Scheme, decode
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_export import gguf_tensors
from volumetric.loaders.gguf_write import GGUFTensorOut, write_gguf
from volumetric.loaders.safetensors import SafetensorsFile

RECORD = Path(__file__).parents[1] / "fixtures" / "llamacpp" / "states.json"


def tensors_of(path: Path) -> dict[str, list[Any]]:
    """Type, shape and checksum of each tensor; decays have none, as libraries differ in the last bit of exp."""
    file = GGUFFile(path)
    return {
        name: [entry.type, list(entry.shape), None if "ssm_a" in name else zlib.crc32(file.raw(name).tobytes())]
        for name, entry in file.entries.items()
    }


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_llama_cpp(case: str, tmp_path: Path) -> None:
    expected = json.loads(RECORD.read_text())[case]
    path = written(case, tmp_path)
    assert tensors_of(path) == expected["tensors"]
    theirs = np.array(expected["logits"])
    found = logits(open_model(path), IDS)[list(POSITIONS)]
    assert np.abs(found - theirs).max() / np.abs(theirs).max() < 2e-6
    given = logits(open_model(source(case, tmp_path / "again")), IDS)[list(POSITIONS)]
    assert np.abs(given - theirs).max() / np.abs(theirs).max() < 2e-6


def test_decays_are_stored_as_they_are_used(tmp_path: Path) -> None:
    file = GGUFFile(written("mamba_double", tmp_path))
    given = SafetensorsFile(TINY / "mamba_double" / "model.safetensors").array("backbone.layers.1.mixer.A_log")
    np.testing.assert_allclose(decode(file.packed("blk.1.ssm_a")), -np.exp(given), rtol=1e-6)
    assert file.metadata["mamba.attention.head_count"] == 0
    kinds = {name: file.entries[f"blk.0.{name}"] for name in ("ssm_a", "ssm_conv1d.weight", "ssm_dt.bias", "ssm_d")}
    assert {name: (entry.type, entry.shape) for name, entry in kinds.items()} == {
        "ssm_a": ("F32", (64, 6)),
        "ssm_conv1d.weight": ("F32", (64, 4)),
        "ssm_dt.bias": ("F32", (64,)),
        "ssm_d": ("F32", (64,)),
    }


def test_what_operations_read_stays_float32(tmp_path: Path) -> None:
    convert_model(TINY / "mamba2", tmp_path / "m.gguf", dtype="bfloat16")
    kinds = {name: entry.type for name, entry in GGUFFile(tmp_path / "m.gguf").entries.items() if ".0." in name}
    assert {name for name, kind in kinds.items() if kind == "BF16"} == {"blk.0.ssm_in.weight", "blk.0.ssm_out.weight"}


def test_a_shared_head_with_another_factor_is_a_tensor(tmp_path: Path) -> None:
    file = GGUFFile(written("falcon_h1_tied", tmp_path))
    ratio = decode(file.packed("output.weight")) / decode(file.packed("token_embd.weight"))
    np.testing.assert_allclose(ratio, 0.3 / 2.5, rtol=1e-6)
    model = open_model(source("falcon_h1_tied", tmp_path / "again"))
    named = [key for keys in gguf_tensors(model).values() for key in keys]
    assert len(named) == len(set(named))
    assert "output.weight" not in gguf_tensors(model)


@pytest.mark.parametrize("dtype", ["int8", "int4", "q5_0", "bfloat16"])
def test_factors_go_into_the_scales_of_packed_weights(dtype: str, tmp_path: Path) -> None:
    convert_model(TINY / "falcon_h1", tmp_path / "m.gguf", dtype=dtype)
    packed, given = open_model(tmp_path / "m.gguf"), open_model(TINY / "falcon_h1", dtype=dtype)
    ours, theirs = logits(packed, IDS), logits(given, IDS)
    exact = 2**-8 if dtype == "bfloat16" else 2**-11  # of a number, or of a scale
    assert np.abs(ours - theirs).max() / np.abs(theirs).max() < 4 * exact
    schemes = [
        {str(store.scheme) for key, store in model.params.items() if key.endswith("/in.weight")}
        for model in (packed, given)
    ]
    assert schemes[0] == schemes[1] == {str(Scheme.parse(dtype))}


@pytest.mark.parametrize(
    ("family", "config", "message"),
    [
        ("mamba", {}, "scans 2 x 32 channels, but the model has 48"),
        ("mamba2", {"time_step_limit": [0.0, 0.1]}, "dt_max=0.1: readers use None"),
        ("falcon_h1", {"mamba_rms_norm": True}, "norm_before_gate=True: readers use False"),
        ("falcon_h1_norm", {}, r"no bias 'blk.0.attn_[qkv].bias'"),
        ("llama4", {}, r"experts at a fixed interval of layers, not in layers \[0, 1\]"),
        ("llama4_sparse", {"attn_scale": 0.2}, r"temperature_scale=0.2: readers use 0.1"),
        ("llama4_sparse", {"no_rope_layers": [1, 0, 1, 0]}, "has .*rope"),
        (
            "llama4_sparse",
            {"max_position_embeddings": 20_000, "attention_chunk_size": 100},
            "a chunk of 100 tokens at .* use 8192",
        ),
    ],
)
def test_what_files_cannot_say_is_refused(family: str, config: dict[str, Any], message: str, tmp_path: Path) -> None:
    directory = copy(family, tmp_path, **config)
    if config.get("mamba_rms_norm"):
        gains = {f"model.layers.{i}.mamba.norm.weight": np.ones(48, np.float32) for i in range(2)}
        rewrite(directory, lambda tensors: tensors.update(gains))
    with pytest.raises(UnsupportedError, match=message):
        convert_model(directory, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_a_chunk_beyond_the_context_is_none(tmp_path: Path) -> None:
    directory = copy("llama4_sparse", tmp_path, attention_chunk_size=256)
    convert_model(directory, tmp_path / "m.gguf")
    assert open_model(tmp_path / "m.gguf").config["attention_chunk_size"] == 8192


@pytest.mark.parametrize(
    ("family", "change", "error", "message"),
    [
        ("mamba_double", {"mamba.ssm.dt_b_c_rms": np.bool_(True)}, UnsupportedError, "dt_b_c_rms"),
        ("mamba_double", {"mamba.ssm.time_step_rank": None}, CheckpointError, "time_step_rank is missing"),
        ("mamba_double", {"mamba.ssm.inner_size": np.uint32(65)}, CheckpointError, "wrong shape"),
        ("mamba_double", {"mamba.ssm.conv_kernel": np.uint32(1)}, CheckpointError, "conv_kernel is '1'"),
        ("mamba2", {"mamba2.ssm.time_step_rank": np.uint32(7)}, CheckpointError, "divided into 7 heads"),
        ("mamba2", {"mamba2.ssm.group_count": np.uint32(3)}, VolumetricError, "3 groups"),
        ("mamba2", {"mamba2.ssm.group_count": np.uint32(0)}, CheckpointError, "group_count is '0'"),
        ("mamba2", {"mamba2.ssm.inner_size": np.uint32(2**31)}, CheckpointError, "inner_size"),
        ("falcon_h1", {"falcon-h1.ssm.time_step_rank": np.uint32(7)}, CheckpointError, "divided into 7 heads"),
        ("llama4_sparse", {"llama4.attention.sliding_window": np.uint32(0)}, UnsupportedError, "without chunks"),
        ("llama4_sparse", {"llama4.interleave_moe_layer_step": np.uint32(1)}, CheckpointError, "needs a router"),
        ("llama4_sparse", {"llama4.expert_count": np.uint32(2**20)}, CheckpointError, "needs a router of 1048576"),
        ("llama4_sparse", {"llama4.expert_weights_scale": np.float32(2)}, UnsupportedError, "expert_weights_scale"),
    ],
)
def test_odd_metadata_are_named(
    family: str, change: dict[str, Any], error: type[VolumetricError], message: str, tmp_path: Path
) -> None:
    refuses(family, change, error, message, tmp_path)


@pytest.mark.parametrize("odd", [0.0, 1.0, np.nan])
def test_decays_that_do_not_fade_are_named(odd: float, tmp_path: Path) -> None:
    file = GGUFFile(written("mamba2", tmp_path))
    out = {
        name: GGUFTensorOut(type=entry.type, shape=entry.shape, read=lambda name=name: file.raw(name))
        for name, entry in file.entries.items()
    }
    rates = np.full(8, -1, np.float32)
    rates[3] = odd
    out["blk.1.ssm_a"] = GGUFTensorOut(type="F32", shape=(8, 1), read=lambda: rates)
    write_gguf(
        tmp_path / "odd.gguf",
        cast(
            "Any",
            {
                k: np.uint32(v) if type(v) is int else np.float32(v) if type(v) is float else v
                for k, v in file.metadata.items()
            },
        ),
        out,
    )
    model = open_model(tmp_path / "odd.gguf")
    with pytest.raises(CheckpointError, match=r"blk.1.ssm_a' contains numbers that are not below 0"):
        logits(model, IDS)
