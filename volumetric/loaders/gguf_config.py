"""Convert metadata of GGUF files to a Hugging Face configuration, so both formats share the model families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.loaders import archs
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_family import KV_HEADS
from volumetric.loaders.gguf_rope import read_rope
from volumetric.loaders.gguf_values import LazyStrings
from volumetric.loaders.hf_config import Config
from volumetric.loaders.tensor_source import TensorSource

if TYPE_CHECKING:
    from volumetric.loaders.gguf_write import Metadata


def read_config(file: GGUFSource, where: str) -> Config:
    """Return the configuration that the metadata of a GGUF file describe, with Hugging Face's names.

    Raises
    ------
    UnsupportedError
        The architecture, or the rotary scaling, is not supported.
    CheckpointError
        Metadata are missing or ill-typed.
    """
    architecture = file.metadata.get("general.architecture")
    family = archs.gguf_family(architecture, where)
    start = f"{architecture}."
    keys = {key.removeprefix(start): value for key, value in file.metadata.items() if key.startswith(start)}
    metadata = Config(keys, f"{where}: {architecture}", len(file.entries))
    embedding = file.entries.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError(f"{where}: the matrix token_embd.weight is missing")
    values: dict[str, Any] = {
        "model_type": family.model_type,
        "architectures": [family.auto_class],
        "hidden_size": metadata.integer("embedding_length"),
        "num_hidden_layers": metadata.layers("block_count"),
        "hidden_act": "silu",
        family.epsilon: metadata.number(family.epsilon_key),
        "max_position_embeddings": metadata.integer("context_length"),
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in file.entries,
    }
    if family.attends:
        values |= _attention(metadata, file, mixed=family.mixed)
        width, turning = values["head_dim"], metadata.integer("rope.dimension_count", values["head_dim"])
        if turning != width and not family.partial:
            raise UnsupportedError(
                f"{metadata.where}: rope.dimension_count is {turning}, but heads have {width} elements",
                hint=f"llama.cpp and this package rotate whole heads in {architecture!r}",
            )
    if metadata.has("attention.sliding_window"):
        values |= {"sliding_window": metadata.integer("attention.sliding_window", low=0), "use_sliding_window": True}
    named = {family.renamed.get(name, name): value for name, value in values.items()}
    own = {name: value for name, value in named.items() if name is not None}
    return Config(own | dict(family.values(metadata, file)), where)


def _attention(metadata: Config, file: TensorSource, *, mixed: bool) -> dict[str, Any]:
    """Values of a model with attention, which also has an MLP in each layer."""
    heads, hidden = metadata.integer("attention.head_count"), metadata.integer("embedding_length")
    head_dim = metadata.integer("attention.key_length", hidden // heads or 1)
    if metadata.integer("attention.value_length", head_dim) != head_dim:
        raise UnsupportedError(f"{metadata.where}: value heads of another width than key heads are not supported")
    return {
        "intermediate_size": metadata.integer("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": _kv_heads(metadata, heads, mixed=mixed),
        "head_dim": head_dim,
        "rope_parameters": read_rope(metadata, file, head_dim),
    }


def _kv_heads(metadata: Config, heads: int, *, mixed: bool) -> int:
    """Number of key/value heads: a number, or a list with one for each layer, 0 for a layer without attention."""
    kv_heads = metadata.values.get(KV_HEADS)
    if not isinstance(kv_heads, np.ndarray) or kv_heads.dtype.kind not in "iu":
        return metadata.integer(KV_HEADS, heads)
    counts = {int(count) for count in kv_heads if count or not mixed}
    if len(counts) != 1:
        raise UnsupportedError(
            f"{metadata.where}: layers with different numbers of key heads {sorted(counts)} are not supported",
            hint="expected the same number in each layer",
        )
    return Config({KV_HEADS: counts.pop()}, metadata.where).integer(KV_HEADS)


_KEYS: Final = "volumetric.damage.parameters"
_NATS: Final = "volumetric.damage.nats"


def damage_metadata(damage: Mapping[str, float]) -> Metadata:
    """Metadata with parameters and nats as two arrays; empty if nothing was measured."""
    return {_KEYS: list(damage), _NATS: np.array(list(damage.values()), np.float32)} if damage else {}


def read_damage(file: GGUFSource) -> dict[str, float]:
    """Read the result of `damage_metadata`; empty if it is missing or was changed by another program."""
    keys, nats = file.metadata.get(_KEYS), file.metadata.get(_NATS)
    if not isinstance(keys, LazyStrings) or not isinstance(nats, np.ndarray) or len(keys) != nats.size:
        return {}
    return dict(zip(keys.decode(), map(float, nats), strict=True))
