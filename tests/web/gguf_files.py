"""Small language models in GGUF files, with chosen types and a tokenizer of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.loaders.byte_bpe import TOKENS, metadata
from volumetric.dtypes import Scheme, encode, to_gguf
from volumetric.loaders.gguf_tensors import HOSTS
from volumetric.loaders.gguf_types import GGUF_TYPES, TYPE_NUMBERS
from volumetric.loaders.gguf_write import GGUFTensorOut, write_gguf

CHAT = "{% for m in messages %}<note>{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"


def write_llama(
    path: Path, types: Mapping[str, str], *, drawn: bool = False, tied: bool = True, **changes: Any
) -> Path:
    """Write a llama, and return its path.

    Parameters
    ----------
    types : part of a matrix's name, such as ``"attn_v"`` or ``"blk.1."`` → its type, the longest counts
    drawn : blocks of random bits instead of small numbers
    tied : whether the embedding is the head, too
    changes : sizes, of which `freqs` is a factor of all rotary frequencies if it is not 0; and keys of metadata with
        double underscores for dots, None removes one
    """
    sizes: dict[str, float] = {"hidden": 256, "heads": 4, "kv": 2, "ff": 256, "layers": 2, "freqs": 0.0}
    own = {name: changes.pop(name, size) for name, size in sizes.items()}
    hidden, heads, kv, ff = (int(own[name]) for name in ("hidden", "heads", "kv", "ff"))
    head = hidden // heads
    keys: dict[str, Any] = {
        "general.architecture": "llama",
        "general.name": "Small llama",
        "llama.block_count": np.uint32(own["layers"]),
        "llama.context_length": np.uint32(64),
        "llama.embedding_length": np.uint32(hidden),
        "llama.feed_forward_length": np.uint32(ff),
        "llama.attention.head_count": np.uint32(heads),
        "llama.attention.head_count_kv": np.uint32(kv),
        "llama.attention.layer_norm_rms_epsilon": np.float32(1e-5),
        "llama.rope.freq_base": np.float32(10000.0),
        "llama.vocab_size": np.uint32(len(TOKENS)),
        **metadata(),
        "tokenizer.chat_template": CHAT,
    }
    keys |= {name.replace("__", "."): value for name, value in changes.items()}
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(TOKENS), hidden)}
    for layer in range(int(own["layers"])):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (hidden,),
            f"blk.{layer}.attn_q.weight": (heads * head, hidden),
            f"blk.{layer}.attn_k.weight": (kv * head, hidden),
            f"blk.{layer}.attn_v.weight": (kv * head, hidden),
            f"blk.{layer}.attn_output.weight": (hidden, heads * head),
            f"blk.{layer}.ffn_norm.weight": (hidden,),
            f"blk.{layer}.ffn_gate.weight": (ff, hidden),
            f"blk.{layer}.ffn_up.weight": (ff, hidden),
            f"blk.{layer}.ffn_down.weight": (hidden, ff),
        }
    shapes["output_norm.weight"] = (hidden,)
    if not tied:
        shapes["output.weight"] = (len(TOKENS), hidden)
    if own["freqs"]:
        shapes["rope_freqs.weight"] = (head // 2,)
    draw = np.random.default_rng(7)
    tensors = {}
    for name, shape in shapes.items():
        kind = _type_of(name, types) if len(shape) > 1 else "F32"
        raw = _raw(draw, kind, shape, drawn=drawn)
        if name == "rope_freqs.weight":
            raw = np.full(shape, own["freqs"], np.float32)
        tensors[name] = GGUFTensorOut(type=kind, shape=shape, read=lambda raw=raw: raw)
    write_gguf(path, {key: value for key, value in keys.items() if value is not None}, tensors)
    return path


def _type_of(name: str, types: Mapping[str, str]) -> str:
    fitting = [part for part in types if part in name]
    return types[max(fitting, key=len)]


def _raw(draw: np.random.Generator, kind: str, shape: tuple[int, ...], *, drawn: bool) -> Any:
    count = int(np.prod(shape))
    if drawn and kind not in HOSTS:
        type_ = GGUF_TYPES[TYPE_NUMBERS[kind]]
        return np.frombuffer(draw.bytes(count // type_.block * type_.block_bytes), np.uint8)
    values = draw.standard_normal(shape).astype(np.float32) / (np.sqrt(shape[-1]) if len(shape) > 1 else 8)
    values = 1 + np.abs(values) if len(shape) == 1 else values
    if kind in HOSTS:
        return np.ascontiguousarray(values.astype(HOSTS[kind])).view(np.uint8)
    return np.frombuffer(to_gguf(encode(values, Scheme.parse(kind))), np.uint8)
