"""Models with state-space layers, and Llama 4, as GGUF files: what tests and fixtures/llamacpp/make.py look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.loaders.tiny import TINY, copy, rewrite
from volumetric.loaders.convert_model import convert_model

IDS = [1, 5, 9, 80, 7, 33, 25, 8, 4, 19, 77, 11, 30, 6, 5, 2, 8, 90, 12, 13, 17, 60, 61, 62, 63]
POSITIONS = (0, 11, 24)
CASES = ("mamba_double", "mamba2", "falcon_h1", "falcon_h1_tied", "llama4_sparse")


def source(case: str, home: Path) -> Path:
    """Directory of a model: a fixture, or a variant of one, made in `home`."""
    if case != "falcon_h1_tied":
        return TINY / case
    directory = copy("falcon_h1", home, mamba_rms_norm=True, mamba_norm_before_gate=False, mlp_bias=True)

    def change(tensors: dict[str, np.ndarray]) -> None:
        rng = np.random.default_rng(1)
        del tensors["lm_head.weight"]
        for i in range(2):
            start = f"model.layers.{i}"
            tensors[f"{start}.mamba.norm.weight"] = rng.normal(1, 0.1, 48).astype(np.float32)
            for name, rows in (("gate", 48), ("up", 48), ("down", 32)):
                tensors[f"{start}.feed_forward.{name}_proj.bias"] = rng.normal(0, 0.3, rows).astype(np.float32)

    rewrite(directory, change)
    config = directory / "config.json"
    config.write_text(config.read_text().replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'))
    return directory


def written(case: str, home: Path) -> Path:
    """The GGUF file of a model."""
    path = home / f"{case}.gguf"
    convert_model(source(case, home), path)
    return path
