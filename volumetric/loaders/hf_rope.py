"""Rotary embedding of a config.json, in the old spelling (rope_theta, rope_scaling) or the new (rope_parameters)."""

from __future__ import annotations

import math
from typing import Any

from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.graph.numeric.rope import Rope
from volumetric.loaders.hf_config import Config

_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")
_OLD_NAMES = {"su": "longrope", "mrope": "default"}
"""``mrope`` equals the plain rotation for text: it differs only for images, whose rows have three positions."""


def read_rope(config: Config, head_dim: int, default_base: float = 10_000.0, *, partial: bool = False) -> Rope:
    """Rotary embedding of a configuration.

    Parameters
    ----------
    partial : whether ``partial_rotary_factor`` is used: in other families transformers ignores it and rotates whole
        heads

    Raises
    ------
    UnsupportedError
        The kind of scaling is not supported.
    CheckpointError
        The values contradict each other.
    """
    section = _rope_section(config)
    base = section.number("rope_theta", config.number("rope_theta", default_base))
    kind = section.values.get("rope_type", section.values.get("type", "default"))
    kind = _OLD_NAMES.get(kind, kind) if isinstance(kind, str) else kind
    if kind not in _KINDS:
        raise UnsupportedError(
            f"{config.where}: rotary scaling {kind!r} is not supported", hint="supported: " + ", ".join(_KINDS)
        )
    part = section.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    rope: dict[str, Any] = {"dim": int(head_dim * part) if partial else head_dim, "base": base}
    if kind == "linear":
        rope |= {"scaling": "linear", "factor": section.number("factor")}
    elif kind == "dynamic":
        # Here max_position_embeddings is the original context, before scaling.
        rope |= {
            "scaling": "dynamic",
            "factor": section.number("factor"),
            "original_context": config.integer("max_position_embeddings", 2048),
        }
    elif kind == "llama3":
        rope |= {
            "scaling": "llama3",
            "factor": section.number("factor"),
            "low_freq_factor": section.number("low_freq_factor"),
            "high_freq_factor": section.number("high_freq_factor"),
            "original_context": _original_context(config, section),
        }
    elif kind == "yarn":
        rope |= _yarn(config, section)
    elif kind == "longrope":
        rope |= _longrope(config, section)
    elif kind == "proportional":
        rope |= {
            "dim": head_dim,
            "scaling": "proportional",
            "factor": section.number("factor", 1.0),
            "turning": int(part * head_dim // 2),
        }
    try:
        return Rope(**rope)
    except SpecError as error:
        raise CheckpointError(f"{config.where}: {error}") from None


def read_ropes_by_kind(config: Config, head_dim: int, default_base: float, sliding_base: float) -> tuple[Rope, Rope]:
    """Rotary embedding of layers with full attention, and of layers with a window.

    Parameters
    ----------
    default_base : default base for full attention
    sliding_base : base for windows in the old spelling, in which scaling is only for full attention
    """
    section = config.section("rope_parameters")
    if section is not None and section.section("full_attention") is not None:
        kinds = (section.values["full_attention"], section.values.get("sliding_attention"))
        full, sliding = (
            read_rope(config.with_values(rope_parameters=kind, rope_scaling=None), head_dim, default_base)
            for kind in kinds
        )
        return full, sliding
    return read_rope(config, head_dim, default_base), Rope(dim=head_dim, base=sliding_base)


def trained_context(config: Config) -> int:
    """Return the context length of a model, in tokens."""
    tokens = config.integer("max_position_embeddings", 2048)
    section = _rope_section(config)
    if section.values.get("rope_type", section.values.get("type")) == "dynamic":
        return int(tokens * section.number("factor"))
    return tokens


def _rope_section(config: Config) -> Config:
    return config.section("rope_parameters") or config.section("rope_scaling") or Config({}, config.where)


def _original_context(config: Config, section: Config) -> int:
    inside = section.integer("original_max_position_embeddings", config.integer("max_position_embeddings", 8192))
    return config.integer("original_max_position_embeddings", inside)


def _factor(config: Config, section: Config, original: int) -> float:
    """Factor of the context over the original context: from the configuration, or the ratio of both."""
    return section.number("factor", config.integer("max_position_embeddings", original) / original)


def _yarn(config: Config, section: Config) -> dict[str, Any]:
    original = _original_context(config, section)
    factor = _factor(config, section, original)
    attention = section.number("attention_factor", 0.0)
    if attention == 0.0:
        scale, scale_all = section.number("mscale", 0.0), section.number("mscale_all_dim", 0.0)
        attention = _mscale(factor, scale) / _mscale(factor, scale_all) if scale and scale_all else _mscale(factor, 1.0)
    return {
        "scaling": "yarn",
        "factor": factor,
        "original_context": original,
        "beta_fast": section.number("beta_fast", 32.0),
        "beta_slow": section.number("beta_slow", 1.0),
        "truncate": section.flag("truncate", True),
        "attention_factor": attention,
    }


def _mscale(factor: float, scale: float) -> float:
    """``0.1 · scale · ln(factor) + 1``, the factor on scores for a longer context (arXiv 2309.00071, section 3.4)."""
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0


def _longrope(config: Config, section: Config) -> dict[str, Any]:
    original = _original_context(config, section)
    factor = _factor(config, section, original)
    return {
        "scaling": "longrope",
        "factor": max(factor, 1.0),
        "original_context": original,
        "attention_factor": section.number("attention_factor", longrope_growth(factor, original)),
        "short_factors": section.numbers("short_factor"),
        "long_factors": section.numbers("long_factor"),
    }


def longrope_growth(factor: float, original: int) -> float:
    """``sqrt(1 + ln(factor) / ln(original))``, the factor on cosines and sines in longrope (arXiv 2402.13753)."""
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0
