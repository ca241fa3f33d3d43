"""Command R (Cohere): one LayerNorm without bias before attention and MLP side by side, a factor on the logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_family import ATTENTION, GATED_MLP, HEAD_NORMS, GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.network import Network

INNER: Final = {"input_layernorm": "attn_norm", **ATTENTION, **GATED_MLP}


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    return {**read_logit_scale(given, file), "use_qk_norm": "blk.0.attn_q_norm.weight" in file.entries}


def read_logit_scale(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    """Return the factor on the logits."""
    del file
    return {"logit_scale": given.number("logit_scale")}


def write_logit_scale(config: Config, network: Network) -> Mapping[str, Any]:
    """Return the factor on the logits as metadata."""
    del network
    return {"logit_scale": np.float32(config.number("logit_scale", 0.0625))}


FAMILY = GGUFFamily(
    model_type="cohere",
    auto_class="CohereForCausalLM",
    inner={**INNER, **HEAD_NORMS},
    epsilon="layer_norm_eps",
    interleaved=True,
    head="shared",
    values=_values,
    metadata=write_logit_scale,
)
