"""Rotary embeddings in GGUF files: base, partial rotation, scaling; Llama 3.1's as a tensor of factors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.dtypes import decode
from volumetric.graph.numeric.rope import Rope, inverse_frequencies
from volumetric.loaders.gguf_family import LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import longrope_growth
from volumetric.loaders.tensor_source import TensorSource


def read_rope(metadata: Config, file: TensorSource, head_dim: int) -> dict[str, Any]:
    """Return the ``rope_parameters`` that the metadata describe.

    Raises
    ------
    UnsupportedError
        The kind of scaling is not supported.
    """
    base = metadata.number("rope.freq_base", 10_000.0)
    dim = metadata.integer("rope.dimension_count", head_dim)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": base}
    if dim != head_dim:
        # Rounded up if the quotient times the width is below the original number.
        part = dim / head_dim
        rope["partial_rotary_factor"] = part if int(head_dim * part) == dim else math.nextafter(part, 2.0)
    kind = metadata.values.get("rope.scaling.type", "none")
    factors = ROPE_FACTORS in file.entries
    longrope = LONG_FACTORS in file.entries or SHORT_FACTORS in file.entries
    known = ("none", "linear", "yarn", *(["longrope"] if longrope else []))
    if not isinstance(kind, str) or kind not in known:
        raise UnsupportedError(
            f"{metadata.where}: rotary scaling {str(kind)[:60]!r} is not supported",
            hint=f"supported: linear, yarn, and longrope by the tensors {LONG_FACTORS} and {SHORT_FACTORS}",
        )
    if kind == "linear":
        rope |= {"rope_type": "linear", "factor": metadata.number("rope.scaling.factor", 1.0)}
    if kind == "yarn":
        rope |= _yarn(metadata)
    if longrope:
        rope |= _longrope(metadata, file, dim)
    if factors and rope["rope_type"] != "default":
        raise UnsupportedError(
            f"{metadata.where}: {ROPE_FACTORS} in addition to the rotary scaling {kind!r} is not supported"
        )
    if factors:
        rope |= _scaling_of_factors(decode(file.packed(ROPE_FACTORS)), base, dim, metadata)
    return rope


def _yarn(metadata: Config) -> dict[str, Any]:
    factor = metadata.number("rope.scaling.factor")
    # Cosines and sines are multiplied by this, in addition to the growth from the factor.
    more = metadata.number("rope.scaling.attn_factor", metadata.number("rope.scaling.yarn_attn_factor", 1.0))
    values: dict[str, Any] = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": metadata.integer("rope.scaling.original_context_length"),
        "beta_fast": metadata.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": metadata.number("rope.scaling.yarn_beta_slow", 1.0),
    }
    return values if more == 1.0 else {**values, "attention_factor": more * yarn_growth(factor)}


def yarn_growth(factor: float) -> float:
    """Default factor on cosines and sines for a factor of yarn."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


def _longrope(metadata: Config, file: TensorSource, dim: int) -> dict[str, Any]:
    context = metadata.integer("context_length")
    original = metadata.integer("rope.scaling.original_context_length", context)
    factor = max(context / original, 1.0)
    values: dict[str, Any] = {
        "rope_type": "longrope",
        "factor": factor,
        "original_max_position_embeddings": original,
    }
    attention = metadata.number("rope.scaling.attn_factor", 1.0)
    if not math.isclose(attention, longrope_growth(factor, original), rel_tol=1e-6):  # files round it
        values["attention_factor"] = attention
    for name, tensor in (("long_factor", LONG_FACTORS), ("short_factor", SHORT_FACTORS)):
        entry = file.entries.get(tensor)
        if entry is None or entry.shape != (dim // 2,):
            raise CheckpointError(f"{metadata.where}: the tensor {tensor} of {dim // 2} numbers is missing")
        values[name] = decode(file.packed(tensor)).astype(np.float64).tolist()
    return values


def _scaling_of_factors(factors: Array, base: float, dim: int, metadata: Config) -> dict[str, Any]:
    """Return the scaling with these factors: the constants of Llama 3.1's or 4's, or else the factors themselves.

    Files do not contain the constants. If the usual constants give the factors, they are returned; other factors become
    a longrope with two equal lists, valid for all contexts.
    """
    if factors.shape != (dim // 2,) or not bool((factors > 0).all() and np.isfinite(factors).all()):
        raise CheckpointError(f"{metadata.where}: {ROPE_FACTORS} is not a list of {dim // 2} positive numbers")
    llama3 = _llama3(factors, base, dim)
    if llama3 is not None:
        return llama3
    same = factors.astype(np.float64).tolist()
    return {
        "rope_type": "longrope",
        "factor": 1.0,
        "attention_factor": 1.0,
        "original_max_position_embeddings": metadata.integer("context_length"),
        "short_factor": same,
        "long_factor": same,
    }


def _llama3(factors: Array, base: float, dim: int) -> dict[str, Any] | None:
    """Find the constants of Llama 3.1's or 4's scaling from its factors; None for other factors."""
    factor = float(factors.max(initial=1.0))
    if factor > 1 and bool((factors >= 1).all()):
        for original in _original_contexts(factors, factor, base, dim):
            for high in (4.0, 1.0):
                constants: dict[str, Any] = {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": high}
                rope = Rope(dim=dim, base=base, scaling="llama3", original_context=original, **constants)
                if np.allclose(rope_factors(rope), factors, rtol=1e-5):
                    return {"rope_type": "llama3", "original_max_position_embeddings": original, **constants}
    return None


def _original_contexts(factors: Array, factor: float, base: float, dim: int) -> list[int]:
    """Candidates for the original context: 8192, and the values that each factor between 1 and the largest implies.

    A factor f blends frequencies by b with 1/f = (1 - b) / factor + b and b = (turns - 1) / (4 - 1), where a pair makes
    `turns` turns within the original context. If no factor is between, pairs of Llama 4 with a full turn keep their
    frequency: the last of these makes one or more turns.
    """
    between = (factors > 1.0001) & (factors < factor * 0.9999)
    blend = (1 / factors[between].astype(np.float64) - 1 / factor) / (1 - 1 / factor)
    turns = 1 + 3 * blend
    plain = inverse_frequencies(Rope(dim=dim, base=base))
    contexts = 2 * np.pi * turns / plain[between]
    unscaled = plain[factors < 1.0001]
    steps = np.ceil(2 * np.pi / unscaled[-1:])
    return [8192, *(int(context) for context in (*np.rint(contexts), *steps) if 1 <= context < 2**31)]


def rope_factors(rope: Rope) -> Array:
    """Plain over scaled frequency for each pair, float32 ``[dim / 2]``: the content of `ROPE_FACTORS`."""
    plain = Rope(dim=rope.dim, base=rope.base)
    return (inverse_frequencies(plain) / inverse_frequencies(rope)).astype(np.float32)


def needs_only_factors(rope: Rope) -> bool:
    """Whether `ROPE_FACTORS` describes a scaling completely: Llama 3.1's, or that of `read_rope` for other factors."""
    one_list = rope.scaling == "longrope" and rope.short_factors == rope.long_factors and rope.attention_factor == 1.0
    return one_list or rope.scaling == "llama3"


def same_rotation(one: Rope, other: Rope) -> bool:
    """Whether two embeddings are equal in every context, up to the float32 rounding of files."""
    if one.dim != other.dim or not math.isclose(one.attention_factor, other.attention_factor, rel_tol=2**-22):
        return False
    contexts = (0, *(c for rope in (one, other) for c in (rope.original_context, rope.original_context + 1)), 2**31)
    return all(
        np.allclose(*(inverse_frequencies(rope.for_context(context)) for rope in (one, other)), rtol=2**-21, atol=0.0)
        for context in contexts
    )
