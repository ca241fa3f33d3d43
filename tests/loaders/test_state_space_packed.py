"""Packed weights of state-space models, from a file to logits and tokens, on every device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from volumetric.loaders import LoadedModel, archs, open_model
from volumetric.loaders.convert_model import convert_weights, save_model
from volumetric.loaders.generation_config import read_generation
from volumetric.loaders.hf_config import Config
from volumetric.network import initialise

IDS = [7, 30, 5, 61, 44, 9, 12, 3, 50, 17, 2, 8]
SIZES: dict[str, Any] = {"hidden_size": 256, "num_hidden_layers": 1, "vocab_size": 64, "tie_word_embeddings": False}
HEADS = {"mamba_n_heads": 8, "mamba_d_ssm": 256, "mamba_d_state": 16, "num_attention_heads": 4}
CONFIGS: dict[str, dict[str, Any]] = {
    "mamba": {"intermediate_size": 512, "time_step_rank": 32},
    "mamba2": {"num_heads": 8, "head_dim": 64, "n_groups": 2, "state_size": 16},
    "falcon_h1": {**HEADS, "num_key_value_heads": 2, "intermediate_size": 256, "ssm_in_multiplier": 0.5},
}


def written(family: str, dtype: str, home: Path) -> Path:
    """A GGUF file of a model with random weights."""
    config = {**SIZES, **CONFIGS[family], "model_type": family, "max_position_embeddings": 64}
    network = archs.build(Config(config, family)).network
    model = LoadedModel(
        name=family,
        network=network,
        params=initialise(network, 5),
        tokenizer=None,
        chat_template=None,
        generation=read_generation([], [], 64, family),
        context_length=64,
        path=home,
        config=config,
    )
    save_model(home / "m.gguf", convert_weights(model, dtype), "gguf")
    return home / "m.gguf"


def run(path: Path, device: str) -> tuple[np.ndarray, list[int]]:
    with volumetric.load(path, device=device, compute="float32", kv_dtype="float32", context=64) as model:
        made = model.generate(IDS[:5], max_tokens=6, temperature=0.0, ignore_eos=True)
        return model.logits(IDS), list(made.token_ids)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("family", "dtype", "devices"),
    [
        # Each family and each type on a CPU; on a GPU both kinds of layers, Mamba-2 in the hybrid.
        ("mamba", "int4:g32", ("cpu", "gpu")),
        ("mamba2", "q4_k", ("cpu",)),
        ("falcon_h1", "q4_k", ("cpu", "gpu")),
    ],
)
def test_packed_weights_run_as_they_stand(family: str, dtype: str, devices: tuple[str, ...], tmp_path: Path) -> None:
    path = written(family, dtype, tmp_path)
    schemes = {key: str(store.scheme) for key, store in open_model(path).params.items()}
    own = {key.rpartition("/")[2]: scheme for key, scheme in schemes.items() if key.startswith("1.")}
    assert {own[name] for name in ("in.weight", "out.weight")} == {dtype}
    reference, tokens = run(path, "reference")
    for device in devices:
        logits, made = run(path, device)
        assert np.abs(logits - reference).max() < 1e-4 * np.abs(reference).max()
        assert made == tokens
