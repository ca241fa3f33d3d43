"""Write trained low-rank overlays as a LoRA adapter that PEFT reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from volumetric._typing import Array
from volumetric.atomic import write_atomic
from volumetric.errors import UnsupportedError
from volumetric.loaders.directory import new_directory
from volumetric.loaders.hf_export import blueprint_of
from volumetric.loaders.model import LoadedModel
from volumetric.loaders.peft import CONFIG, WEIGHTS
from volumetric.loaders.safetensors_write import TensorOut, array_out, write_safetensors
from volumetric.loaders.text_files import to_json
from volumetric.runtime.graph.low_rank import DOWN, UP


def save_adapter(
    directory: str | Path, model: LoadedModel, factors: Mapping[str, Array], *, rank: int, alpha: float
) -> None:
    """Write ``adapter_config.json`` and ``adapter_model.safetensors``; the directory appears whole or not at all.

    Parameters
    ----------
    model : that the overlays are for; of a family that Hugging Face has
    factors : ``<key of a weight>:a`` ``[rank, in]`` and ``…:b`` ``[out, rank]``, as `train.LowRank` names them
    rank, alpha : of all of them; what is added is ``alpha / rank · B A``

    Raises
    ------
    UnsupportedError
        The model is of no family, or a weight is a part of a fused tensor, for which PEFT has no factors of its own.
    CheckpointError
        The directory cannot be written.
    """
    rules = {rule.key: rule for rule in blueprint_of(model).rules}
    tensors: dict[str, TensorOut] = {}
    modules: set[str] = set()
    for key, values in factors.items():
        rule = rules.get(key.removesuffix(DOWN).removesuffix(UP))
        if rule is None or rule.part is not None or not key.endswith((DOWN, UP)):
            raise UnsupportedError(
                f"{key} has no place in an adapter of {model.name}",
                hint="fused projections have no LoRA of their parts",
            )
        module = rule.source.removesuffix(".weight")
        modules.add(module)
        name = f"base_model.model.{module}.lora_{'A' if key.endswith(DOWN) else 'B'}.weight"
        tensors[name] = array_out(np.ascontiguousarray(values, np.float32))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": model.name,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "target_modules": "|".join(re.escape(module) for module in sorted(modules)),
    }
    with new_directory(directory, CONFIG) as home:
        write_atomic(home / CONFIG, to_json(config))
        write_safetensors(home / WEIGHTS, tensors, {"format": "pt"})
