"""Write a model as a GGUF file that llama.cpp reads: its names, row order, block formats and tokenizer keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.dtypes import Packed, Scheme, to_gguf
from volumetric.errors import UnsupportedError
from volumetric.layers import LayerSpec, MultiHeadAttention
from volumetric.loaders.gguf_config import FAMILIES, ROPE_FACTORS, gguf_name, interleaved_heads, rope_factors
from volumetric.loaders.gguf_limits import check_network, check_tensors
from volumetric.loaders.gguf_tokenizer_export import generation_metadata, tokenizer_metadata
from volumetric.loaders.gguf_types import BLOCK_TYPES
from volumetric.loaders.gguf_write import GGUFTensorOut, Metadata, write_gguf
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_export import blueprint_of
from volumetric.loaders.model import LoadedModel
from volumetric.loaders.names import permute_rows
from volumetric.loaders.quantise import convert
from volumetric.network import Network
from volumetric.weights import WeightStore

_FILE_TYPES: Final = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "BF16": 32}
"""llama.cpp's numbers for "mostly of this type"."""


def save_gguf(path: str | Path, model: LoadedModel) -> None:
    """Write one GGUF file, with tokenizer and chat template where the model has them.

    Tensors in float16, bfloat16, float32, int8:g32, int4:g32 and uint4:g32 keep their numbers exactly; all others, and
    rows that do not fill blocks of 32, are written as float32 or, where wider, rounded to it. Gains and biases are
    float32, as llama.cpp wants them.

    An embedding with more rows than there are tokens gets tokens without use for the rest, as llama.cpp wants one for
    each row. A window that is no shorter than the context cuts nothing and is left out.

    Raises
    ------
    UnsupportedError
        The family, its rotary scaling, or the tokenizer has no GGUF form here; or the file could not say something that
        the model computes with, as another activation than SiLU, a sliding window, or biases that llama.cpp does not
        know in the family.
    CheckpointError
        The file cannot be written.
    """
    blueprint = blueprint_of(model)
    family = Config(model.config, model.name).model_type
    network = _without_idle_windows(model)
    if family == "mistral" and all(spec.window is None for spec in attentions(network)):
        family = "llama"  # without its window it is one
    if family not in FAMILIES:
        raise UnsupportedError(f"family {family!r} cannot be written as GGUF", hint=f"supported: {', '.join(FAMILIES)}")
    tensors: dict[str, GGUFTensorOut] = {}
    factors = _rope_factors(model)
    if factors is not None:
        tensors[ROPE_FACTORS] = GGUFTensorOut(type="F32", shape=factors.shape, read=lambda: factors)
    for rule in blueprint.rules:
        heads = interleaved_heads(rule, model.network, family)
        tensors[gguf_name(rule.source)] = _out(model.params[rule.key], heads)
    metadata: dict[str, Any] = {**_metadata(model, family, tensors)}
    check_tensors(family, tensors, attentions(network)[0])
    check_network(network, metadata, tensors)
    rows = Config(model.config, model.name).integer("vocab_size")
    metadata |= generation_metadata(model.generation, model.tokenizer) | tokenizer_metadata(model.tokenizer, rows)
    if model.chat_template is not None:
        metadata["tokenizer.chat_template"] = model.chat_template.source
    write_gguf(path, metadata, tensors)


def attentions(network: Network) -> list[MultiHeadAttention]:
    """Return the attention layers of a network, in order."""
    return [spec for spec in network.layers.values() if isinstance(spec, MultiHeadAttention)]


def _without_idle_windows(model: LoadedModel) -> Network:
    """The network without windows that are no shorter than the context."""

    def plain(spec: LayerSpec) -> LayerSpec:
        if not isinstance(spec, MultiHeadAttention) or spec.window is None or not model.context_length:
            return spec
        return spec if spec.window < model.context_length else dataclasses.replace(spec, window=None)

    layers = {coord: plain(spec) for coord, spec in model.network.layers.items()}
    return dataclasses.replace(model.network, layers=layers)


def gguf_scheme(scheme: Scheme, shape: Shape) -> Scheme:
    """Scheme in which a tensor is written: its own if GGUF has it, else float32."""
    kind = scheme.gguf_type
    fits = len(shape) > 1 and kind is not None and kind != "F64" and (kind not in BLOCK_TYPES or shape[-1] % 32 == 0)
    return scheme if fits else Scheme.parse("float32")


def _out(store: WeightStore, heads: int | None) -> GGUFTensorOut:
    scheme = gguf_scheme(store.scheme, store.shape)
    kind = scheme.gguf_type or "F32"

    def read() -> Array:
        packed = convert(store.stored(), scheme)
        store.release()
        return _bytes_of(packed if heads is None else permute_rows(packed, heads), kind)

    return GGUFTensorOut(type=kind, shape=store.shape, read=read)


def _bytes_of(packed: Packed, kind: str) -> Array:
    return np.frombuffer(to_gguf(packed), np.uint8) if kind in BLOCK_TYPES else packed.codes()


def _rope_factors(model: LoadedModel) -> Array | None:
    """Factors of Llama 3.1's frequency scaling, which GGUF stores as a tensor."""
    ropes = {spec.rope for spec in attentions(model.network)}
    rope = ropes.pop() if len(ropes) == 1 else None
    if rope is None:
        raise UnsupportedError("layers of different rotary embeddings cannot be written as GGUF")
    return rope_factors(rope) if rope.scaling == "llama3" else None


def _metadata(model: LoadedModel, family: str, tensors: Mapping[str, GGUFTensorOut]) -> Metadata:
    attention = attentions(model.network)[0]
    config = Config(model.config, model.name)
    rope = attention.rope
    kinds = [t.type for t in tensors.values() if len(t.shape) > 1]
    main = max(_FILE_TYPES, key=kinds.count)
    values: dict[str, Any] = {
        "general.architecture": family,
        "general.type": "model",
        "general.name": model.name,
        "general.file_type": np.uint32(_FILE_TYPES[main]),
        "general.quantization_version": np.uint32(2),
        f"{family}.block_count": np.uint32(len(attentions(model.network))),
        f"{family}.context_length": np.uint32(model.context_length),
        f"{family}.embedding_length": np.uint32(attention.embed_dim),
        f"{family}.feed_forward_length": np.uint32(config.integer("intermediate_size")),
        f"{family}.attention.head_count": np.uint32(attention.num_heads),
        f"{family}.attention.head_count_kv": np.uint32(attention.kv_heads),
        f"{family}.attention.key_length": np.uint32(attention.width),
        f"{family}.attention.value_length": np.uint32(attention.width),
        f"{family}.attention.layer_norm_rms_epsilon": np.float32(config.number("rms_norm_eps", 1e-6)),
        f"{family}.vocab_size": np.uint32(config.integer("vocab_size")),
    }
    if rope is not None:
        values[f"{family}.rope.freq_base"] = np.float32(rope.base)
        values[f"{family}.rope.dimension_count"] = np.uint32(rope.dim)
        if rope.scaling == "linear":
            values[f"{family}.rope.scaling.type"] = "linear"
            values[f"{family}.rope.scaling.factor"] = np.float32(rope.factor)
    return values
