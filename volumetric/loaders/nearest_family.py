"""Error for a checkpoint of an unsupported family: the nearest supported family, and its differences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from volumetric.base.errors import UnsupportedError, VolumetricError
from volumetric.loaders import archs
from volumetric.loaders.hf_config import Config

LACKING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gemma3n": "nearest is gemma3, which lacks AltUp (parallel streams that predict and correct each other), "
        "LAuReL (a low-rank residual for each layer), per-layer embeddings, gates that keep only their "
        "largest values, norms of attention values, and layers that read the keys and values of earlier layers",
        "paligemma": "its text model is a gemma or gemma2 with bidirectional attention within the prompt (image "
        "and text), but such prefix attention is not supported",
    }
)
"""Unsupported families → the features that they would need."""
COMPUTED_AS: Final[Mapping[str, str]] = MappingProxyType(
    {"internlm3": "llama", "iquestcoder": "llama", "ministral": "mistral", "cwm": "mistral"}
)
"""Unsupported families → equivalent family in transformers 5.23, verified by comparison of logits."""
OTHERWISE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "helium": "it rotates neighbouring elements of a head as pairs, but llama rotates halves",
        "ministral3": "it scales queries by their position (llama_4_scaling_beta)",
    }
)
"""Families that share all names with a supported one → difference in the computation."""
_ENCODER_DECODER: Final = "it is an encoder-decoder, but only single encoders and decoders are supported"
_IMAGES: Final = "it is an image model, but only text models are supported"
_SOUND: Final = "it is an audio model, but only text models are supported"
_RELATIVE: Final = "it has relative position biases, which attention here does not support"
_SIGNS: Final[tuple[tuple[str, str], ...]] = (
    ("is_encoder_decoder", _ENCODER_DECODER),
    ("decoder_attention_heads", _ENCODER_DECODER),
    ("num_decoder_layers", _ENCODER_DECODER),
    ("num_mel_bins", _SOUND),
    ("conv_kernel", _SOUND),
    ("sampling_rate", _SOUND),
    ("patch_size", _IMAGES),
    ("image_size", _IMAGES),
    ("vision_config", "it is a model of images and texts whose text part is not supported"),
    ("alibi", "it has biases by distance (ALiBi) in the place of rotated positions"),
    ("relative_attention", _RELATIVE),
    ("relative_attention_num_buckets", _RELATIVE),
    ("kv_lora_rank", "it has latent attention (MLA)"),
    ("linear_num_value_heads", "it has layers of a gated delta rule"),
    ("hybrid_override_pattern", "it mixes attention with state-space layers"),
    ("attn_layer_indices", "it mixes attention with state-space layers"),
    ("head_size_divisor", "it is an RWKV, whose recurrence is not supported"),
)
"""Key of a configuration that is present and neither false nor null → reason; the first one counts."""
_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"bloom": "it has biases by distance (ALiBi) in the place of rotated positions", "rwkv": "it is an RWKV"}
)
"""Families whose configuration has none of these keys → reason."""
_LAYERS: Final = 4
"""Number of layers that are compared; more layers repeat the same names."""
_SHOWN: Final = 6
_ALIKE: Final = 0.3
"""Fraction of the names that must match for a family to be reported as near."""
_ELSEWHERE: Final = re.compile(
    r"_.*|architectures|auto_map|model_type|torch_dtype|dtype|transformers_version|use_cache|.*_token_id|.*dropout.*|"
    r".*_pdrop|initializer_range|.*_init.*|pretraining_tp|output_.*|return_dict|is_.*|.*loss.*|id2label|label2id|"
    r"layer_types|max_window_layers|use_sliding_window|rope_.*|head_dim|attention_bias|mlp_bias|tie_word_embeddings"
)
"""Keys that do not affect the computation, or that families read only when needed."""


def not_supported(config: Config, names: Iterable[str]) -> UnsupportedError:
    """Return the error for an unsupported family.

    Parameters
    ----------
    names : names of the tensors of the checkpoint
    """
    reason = _reason(config)
    near = LACKING.get(config.family) or nearest_family(config, names)
    supported = "supported: " + ", ".join(archs.families())
    return UnsupportedError(
        f"{config.where}: model family {config.model_type!r} is not supported" + (f": {reason}" if reason else ""),
        hint=f"{near}; {supported}" if near else supported,
    )


def _reason(config: Config) -> str | None:
    """Reason from the configuration of an unsupported family, if a single key is more informative than names."""
    family = config.family
    values = config.values
    if family in _KINDS:
        return _KINDS[family]
    attention = values.get("attn_config")  # in MPT
    if isinstance(attention, Mapping) and attention.get("alibi") is True:
        values = {**values, "alibi": True}
    return next((reason for key, reason in _SIGNS if values.get(key) not in (None, False)), None)


def _same_names_text(config: Config, family: str) -> str:
    """Text for the case that all names match another family, which does not prove equal computation."""
    own = config.family
    start = f"nearest is {family}: the names of its tensors and settings agree"
    if own in COMPUTED_AS:
        same = COMPUTED_AS[own]
        return f"transformers computes it as {same}: copy the directory and set model_type {same} in its config.json"
    if own in OTHERWISE:
        return f"{start}, but {OTHERWISE[own]}"
    return (
        f"{start}, but two architectures can share names and compute different results. If its "
        f"documentation says that it is a {family}, copy the directory and set model_type {family} in its config.json"
    )


def nearest_family(config: Config, names: Iterable[str]) -> str | None:
    """Return a text with the family of the most similar tensors and the differences; None if no family is near."""
    here = {template(name) for name in names}
    candidates: list[tuple[float, int, str, set[str], list[str]]] = []
    for family in sorted(archs.families(), key=lambda name: (name != "llama", name)):  # of equal ones the plainest
        asking = _shortened_config(config, family)
        try:
            blueprint = archs.build(asking)
        except VolumetricError:
            continue  # it needs values that this configuration lacks
        tied = {template(name) for name in blueprint.tied}  # this tensor is optional
        there = {template(rule.source) for rule in blueprint.rules} | (tied & here)
        keys_read = asking.keys_read or set()
        unread = [key for key in config.values if key not in keys_read and not _ELSEWHERE.fullmatch(key)]
        candidates.append(
            (round(len(here & there) / max(len(here | there), 1), 3), -len(unread), family, there, unread)
        )
    alike, _, family, there, unread = max(candidates, key=lambda one: one[:2], default=(0.0, 0, "", set(), []))
    if alike < _ALIKE:
        return None
    differences = [
        _list_names("tensors that it does not have", here - there),
        _list_names("missing tensors", there - here),
        _list_names("settings that it does not read", unread),
    ]
    text = "; ".join(part for part in differences if part)
    return f"nearest is {family}: {text}" if text else _same_names_text(config, family)


def _shortened_config(config: Config, family: str) -> Config:
    """The configuration as one of `family`, with a few layers."""
    values: dict[str, Any] = {"model_type": family}
    for name in ("num_hidden_layers", "n_layer"):
        if type(config.values.get(name)) is int:
            values[name] = max(1, min(config.values[name], _LAYERS))
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list):
        values["layer_types"] = kinds[:_LAYERS]
    return Config({**config.values, **values}, config.where, keys_read=set())


def template(name: str) -> str:
    """Return a tensor's name without its numbers, so it is the same in all layers."""
    return re.sub(r"\d+", "N", name)


def _list_names(title: str, names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"{title}: {', '.join(listed[:_SHOWN])}{more}" if listed else ""
