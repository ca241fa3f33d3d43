"""An encoder of MiniLM's shape with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.dtypes import Scheme
from volumetric.loaders import LoadedModel, archs
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.loaders.hf_config import Config
from volumetric.loaders.target_schemes import convert
from volumetric.network import Params
from volumetric.network.weight_store import WeightStore

MINILM: Mapping[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
"""Configuration of all-MiniLM-L6-v2."""
DEVIATION = 0.02


def random_encoder(config: Mapping[str, Any] = MINILM, dtype: str = "float32") -> LoadedModel:
    """Return an encoder without a tokenizer, its weights normal, gains one and biases small."""
    blueprint = archs.build(Config(config, "encoder"))
    draw = np.random.default_rng(0)
    stores: dict[str, WeightStore] = {}
    for key, spec in blueprint.network.param_specs().items():
        values = draw.normal(1.0 if spec.init == "ones" else 0.0, DEVIATION, spec.shape).astype(np.float32)
        store = WeightStore.from_array(values)
        stores[key] = store if len(spec.shape) == 1 else _stored(store, dtype)
    return LoadedModel(
        name="random encoder",
        network=blueprint.network,
        params=Params(stores),
        tokenizer=None,
        chat_template=None,
        generation=GenerationDefaults(),
        context_length=config["max_position_embeddings"],
        path=Path("encoder"),
        config=dict(config),
    )


def _stored(store: WeightStore, dtype: str) -> WeightStore:
    packed = convert(store.packed(), Scheme.parse(dtype))
    return WeightStore(store.shape, packed.scheme, lambda: packed)


def named_weights(model: LoadedModel) -> dict[str, F32Array]:
    """Return the weights as float32 by their names in Hugging Face's files, without the prefix."""
    rules = archs.build(Config(model.config, "encoder")).rules
    return {rule.source.removeprefix("bert."): model.params[rule.key].values() for rule in rules}
