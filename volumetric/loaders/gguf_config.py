"""GGUF metadata ↔ the configuration and tensor names of Hugging Face, so that both formats share the model families."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

import numpy as np

from volumetric._typing import Array
from volumetric.dtypes import decode
from volumetric.errors import CheckpointError, UnsupportedError
from volumetric.grid import Coord
from volumetric.layers import MultiHeadAttention
from volumetric.layers.rope import Rope, inverse_frequencies
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint, NameRule
from volumetric.network import Network

FAMILIES: Final = ("llama", "qwen2", "qwen3")
"""Architectures that are read and written; their names are those of the model types."""
INTERLEAVED: Final = frozenset({"llama"})
"""Architectures whose query and key rows are stored with the rotary halves alternating."""
ROPE_FACTORS: Final = "rope_freqs.weight"
"""Tensor by which Llama 3.1's frequency scaling is stored: plain over scaled frequency, for each pair."""

_OUTER: Final = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_INNER: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
# What quantisers leave in the file for other programs: rotary factors, read with the configuration.
_IGNORED: Final = (re.escape(ROPE_FACTORS),)


def gguf_name(name: str) -> str:
    """Name in a GGUF file of a tensor with a Hugging Face name.

    Raises
    ------
    UnsupportedError
        GGUF has no name for it, or it is not known here.
    """
    match = _LAYER.fullmatch(name)
    if match and match[2] in _INNER:
        return f"blk.{match[1]}.{_INNER[match[2]]}.{match[3]}"
    stem, _, kind = name.rpartition(".")
    if stem not in _OUTER:
        raise UnsupportedError(f"tensor {name!r} has no name in GGUF files", hint=f"families: {', '.join(FAMILIES)}")
    return f"{_OUTER[stem]}.{kind}"


def in_gguf(blueprint: Blueprint, architecture: str) -> Blueprint:
    """Return a blueprint whose rules speak of GGUF tensors."""
    rules = tuple(
        dataclasses.replace(
            rule,
            source=gguf_name(rule.source),
            interleaved_heads=interleaved_heads(rule, blueprint.network, architecture),
        )
        for rule in blueprint.rules
    )
    return dataclasses.replace(blueprint, rules=rules, ignored=_IGNORED, tied={}, prefix="")


def interleaved_heads(rule: NameRule, network: Network, architecture: str) -> int | None:
    """Heads by which the rows of a parameter are interleaved in a GGUF file, None where they are not."""
    where, _, name = rule.key.partition("/")
    spec = network.layers[Coord.parse(where)]
    if architecture not in INTERLEAVED or not isinstance(spec, MultiHeadAttention):
        return None
    return {"q": spec.num_heads, "k": spec.kv_heads}.get(name.partition(".")[0])


def read_config(file: GGUFSource, where: str) -> Config:
    """Return the configuration that the metadata of a GGUF file describe, in Hugging Face's terms.

    Raises
    ------
    UnsupportedError
        The architecture, or the rotary scaling, is not supported.
    CheckpointError
        Metadata are missing or ill-typed.
    """
    found = file.metadata.get("general.architecture")
    if found not in FAMILIES:
        raise UnsupportedError(
            f"{where}: GGUF architecture {found!r} is not supported", hint=f"supported: {', '.join(FAMILIES)}"
        )
    family = str(found)
    keys = {key.removeprefix(family + "."): v for key, v in file.metadata.items() if key.startswith(family + ".")}
    given = Config(keys, f"{where}: {family}", len(file.entries))
    given.require("expert_count", 0)
    heads, hidden = given.integer("attention.head_count"), given.integer("embedding_length")
    head_dim = given.integer("attention.key_length", hidden // heads or 1)
    if given.integer("attention.value_length", head_dim) != head_dim:
        raise UnsupportedError(f"{where}: values of another width than keys are not supported")
    embedding = file.entries.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError(f"{where}: there is no matrix token_embd.weight")
    values: dict[str, Any] = {
        "model_type": family,
        "architectures": [{"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[family] + "ForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": given.integer("feed_forward_length"),
        "num_hidden_layers": given.layers("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": given.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": given.number("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": given.integer("context_length"),
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in file.entries,
        "rope_parameters": _rope(given, file, head_dim),
    }
    values |= _biases(family, file)
    if given.has("attention.sliding_window"):
        values |= {"sliding_window": given.integer("attention.sliding_window"), "use_sliding_window": True}
    return Config(values, where)


def _biases(family: str, file: GGUFSource) -> dict[str, bool]:
    """Flags that the metadata do not have: seen in the tensors of the first layer."""
    if family == "qwen2":
        return {}
    biases = {"attention_bias": "blk.0.attn_q.bias" in file.entries}
    return biases | ({"mlp_bias": "blk.0.ffn_up.bias" in file.entries} if family == "llama" else {})


def _rope(given: Config, file: GGUFSource, head_dim: int) -> dict[str, Any]:
    base = given.number("rope.freq_base", 10_000.0)
    dim = given.integer("rope.dimension_count", head_dim)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": base}
    if dim != head_dim:
        rope["partial_rotary_factor"] = dim / head_dim
    kind = given.values.get("rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise UnsupportedError(f"{given.where}: rotary scaling {kind!r} is not supported", hint="supported: linear")
    if kind == "linear":
        rope |= {"rope_type": "linear", "factor": given.number("rope.scaling.factor", 1.0)}
    if ROPE_FACTORS in file.entries:
        rope |= _llama3(decode(file.packed(ROPE_FACTORS)), base, dim, given.where)
    return rope


def _llama3(factors: Array, base: float, dim: int, where: str) -> dict[str, Any]:
    """Find the parameters of Llama 3.1's scaling from the factors that it gave; they are not stored themselves."""
    factor = float(factors.max(initial=1.0))
    sound = dim % 2 == 0 and base > 0 and factors.shape == (dim // 2,) and bool((factors >= 1).all())
    if sound and 1 < factor < np.inf:
        for original in _original_contexts(factors, factor, base, dim):
            constants = {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
            rope = Rope(dim=dim, base=base, scaling="llama3", original_context=original, **constants)
            if np.allclose(rope_factors(rope), factors, rtol=1e-4):
                return {"rope_type": "llama3", "original_max_position_embeddings": original, **constants}
    raise UnsupportedError(f"{where}: {ROPE_FACTORS} is not the frequency scaling of Llama 3.1")


def _original_contexts(factors: Array, factor: float, base: float, dim: int) -> list[int]:
    """Candidates for the context before scaling: 8192, and what each factor between 1 and the largest implies.

    A factor f blends frequencies by b with 1/f = (1 - b) / factor + b and b = (turns - 1) / (4 - 1), where a pair makes
    `turns` turns within the original context.
    """
    between = (factors > 1.0001) & (factors < factor * 0.9999)
    blend = (1 / factors[between].astype(np.float64) - 1 / factor) / (1 - 1 / factor)
    turns = 1 + 3 * blend
    contexts = 2 * np.pi * turns / inverse_frequencies(Rope(dim=dim, base=base))[between]
    return [8192, *(int(context) for context in np.rint(contexts) if 1 <= context < 2**31)]


def rope_factors(rope: Rope) -> Array:
    """Plain over scaled frequency for each pair, float32 ``[dim / 2]``: what `ROPE_FACTORS` holds."""
    plain = Rope(dim=rope.dim, base=rope.base)
    return (inverse_frequencies(plain) / inverse_frequencies(rope)).astype(np.float32)
