"""The tiny models of families, and changed copies of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from volumetric.devices.reference_device import ReferenceDevice
from volumetric.loaders import LoadedModel
from volumetric.loaders.safetensors import SafetensorsFile
from volumetric.loaders.safetensors_write import array_out, write_safetensors
from volumetric.run.lower import lower

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
