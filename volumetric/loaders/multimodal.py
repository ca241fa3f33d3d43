"""Multimodal checkpoints: a view of their text model as a separate checkpoint."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from volumetric.base.errors import UnsupportedError
from volumetric.dtypes import Packed, Scheme
from volumetric.loaders.hf_config import Config, family_name
from volumetric.loaders.nearest_family import LACKING
from volumetric.loaders.tensor_source import TensorEntry, TensorSource

logger: logging.Logger = logging.getLogger(__name__)

TEXT_FAMILIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gemma3_text": "gemma3",
        "llama": "llama",
        "llama4_text": "llama4",
        "mistral": "mistral",
        "qwen2": "qwen2",
        "qwen2_vl_text": "qwen2",
        "qwen2_5_vl_text": "qwen2",
        "qwen2_vl": "qwen2",
        "qwen2_5_vl": "qwen2",
        "qwen3": "qwen3",
        "qwen3_vl_text": "qwen3",
        "cohere2": "cohere2",
    }
)
"""Type of a text configuration → family. Qwen's models rotate image rows by three positions, text rows by one."""

MODELS: Final = frozenset(
    {
        "aya_vision",
        "gemma3",
        "idefics3",
        "internvl",
        "llama4",
        "llava",
        "llava_next",
        "llava_onevision",
        "mistral3",
        "qwen2_5_vl",
        "qwen2_vl",
        "qwen3_vl",
        "smolvlm",
        "video_llava",
        "vipllava",
        "voxtral",
    }
)
"""Models whose text part equals the family for text. PaliGemma's, for example, differs: prompts have bidirectional
attention."""

DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "gemma3": {
            "vocab_size": 262208,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 131072,
            "sliding_window": 4096,
        },
        "llama": {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "max_position_embeddings": 2048,
        },
        "llama4": {
            "vocab_size": 202048,
            "hidden_size": 5120,
            "intermediate_size": 8192,
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 131072,
        },
        "mistral": {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "sliding_window": 4096,
        },
    }
)
"""Default sizes in transformers: published text configurations list only differences."""

# Prefixes of text models in checkpoints, newest first, and their prefix in a text-only checkpoint.
_SPELLINGS: Final = (
    {"model.language_model.": "model.", "lm_head.": "lm_head."},
    {"model.text_model.": "model.", "lm_head.": "lm_head."},
    {"language_model.model.": "model.", "language_model.lm_head.": "lm_head."},
    {"model.": "model.", "lm_head.": "lm_head."},
)


class TextTensors:
    """The tensors of a text model under the names of a text-only checkpoint.

    Parameters
    ----------
    source : the whole checkpoint
    names : text-only name → name in `source`
    """

    __slots__ = ("_names", "_source", "entries")

    def __init__(self, source: TensorSource, names: Mapping[str, str]) -> None:
        self._source, self._names = source, names
        self.entries: dict[str, TensorEntry] = {
            name: dataclasses.replace(source.entries[there], name=name) for name, there in names.items()
        }

    def scheme(self, name: str) -> Scheme:
        """Return the scheme of one tensor."""
        return self._source.scheme(self._names.get(name, name))

    def packed(self, name: str) -> Packed:
        """Read one tensor."""
        return self._source.packed(self._names.get(name, name))

    def packed_rows(self, name: str, start: int, stop: int) -> Packed:
        """Read some rows of one tensor."""
        return self._source.packed_rows(self._names.get(name, name), start, stop)

    def release(self, name: str) -> None:
        """Drop the mapped pages of one tensor."""
        self._source.release(self._names.get(name, name))


def text_part(config: Config, source: TensorSource) -> tuple[Config, TensorSource]:
    """Return configuration and tensors of the text model of a multimodal checkpoint; other checkpoints are unchanged.

    A warning lists the parts that are left out.

    Raises
    ------
    UnsupportedError
        The family of the text model is not supported, or it computes differently inside this model.
    """
    inner = config.section("text_config")
    if inner is None and not (config.model_type in MODELS and config.section("vision_config") is not None):
        return config, source
    kind = (inner or config).values.get("model_type", config.model_type)
    family = TEXT_FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None or config.model_type not in MODELS:
        kinds = (config.model_type, family_name(kind) if isinstance(kind, str) else "")
        lacking = [LACKING[name] for name in dict.fromkeys(kinds) if name in LACKING]
        raise UnsupportedError(
            f"{config.where}: a multimodal {config.model_type}, whose text model is {kind!r}, is not supported",
            hint="; ".join((*lacking, "supported text models: those of " + ", ".join(sorted(MODELS)))),
        )
    names, rest = _text_names(source)
    logger.warning(
        "%s: only the text model of the multimodal %s is loaded, a %s; left out: %s",
        config.where,
        config.model_type,
        family,
        _parts(rest),
    )
    text = TextTensors(source, names)
    outer = ("bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings", "torch_dtype", "dtype")
    values = {name: config.values[name] for name in outer if config.has(name)}
    text_values = config.values if inner is None else inner.values
    values = {**DEFAULTS.get(family, {}), **text_values, **values, "model_type": family}
    if not isinstance(values.get("tie_word_embeddings"), bool):
        values["tie_word_embeddings"] = "lm_head.weight" not in text.entries
    values = {name: value for name, value in values.items() if name not in ("architectures", "vision_config")}
    return Config(values, config.where, len(text.entries)), text


def _text_names(source: TensorSource) -> tuple[dict[str, str], list[str]]:
    """Tensors of the text model, text-only name → name in the file, and all other tensors."""
    spelling = next((one for one in _SPELLINGS if any(n.startswith(next(iter(one))) for n in source.entries)), {})
    names: dict[str, str] = {}
    rest: list[str] = []
    for name in source.entries:
        start = next((start for start in spelling if name.startswith(start)), None)
        if start is None:
            rest.append(name)
        else:
            names[spelling[start] + name.removeprefix(start)] = name
    return names, rest


def _parts(names: list[str]) -> str:
    """Text such as ``vision_tower (437 tensors), multi_modal_projector (2 tensors)``."""
    counts: dict[str, int] = {}
    for name in names:
        part = name.removeprefix("model.").split(".", 1)[0]
        counts[part] = counts.get(part, 0) + 1
    return ", ".join(f"{part} ({count} tensors)" for part, count in counts.items()) or "nothing"
