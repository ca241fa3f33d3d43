"""The part of an encoder that GGUF files hold: hidden states, with positions that are counted from 0."""

from __future__ import annotations

import dataclasses
import logging
from typing import Final

from volumetric.layers import PositionEmbedding
from volumetric.loaders import archs
from volumetric.loaders.encoder_layers import trunk_of
from volumetric.loaders.hf_config import Config
from volumetric.loaders.model import LoadedModel
from volumetric.loaders.names import Blueprint
from volumetric.network import Params
from volumetric.weights import WeightStore

logger = logging.getLogger(__name__)

LIKE_BERT: Final = ("roberta", "xlm_roberta")
"""Families that are written as BERT."""


def encoder_in_gguf(model: LoadedModel, blueprint: Blueprint) -> tuple[LoadedModel, Blueprint]:
    """Return an encoder without a head that predicts masked tokens, and RoBERTa as the BERT that computes the same.

    RoBERTa counts positions from behind that of the padding token, whose row and those before it nothing reads. Files
    leave these rows out, as llama.cpp's converter does, and call the rest BERT.
    """
    if blueprint.hidden is not None:
        logger.warning("%s: the head that predicts masked tokens has no form in GGUF files: left out", model.name)
        blueprint = trunk_of(blueprint)
        model = dataclasses.replace(model, network=blueprint.network, hidden=None)
    config = Config(model.config, model.name)
    if config.family not in LIKE_BERT:
        return model, blueprint
    coord, table = next((at, spec) for at, spec in model.network.layers.items() if isinstance(spec, PositionEmbedding))
    config = config.with_values(
        model_type="bert",
        architectures=["BertModel"],
        max_position_embeddings=table.num_embeddings - table.offset,
    )
    plain = archs.build(config)
    key = f"{coord}/weight"
    rows = model.params[key].stored().row_slice(table.offset, table.num_embeddings)
    params = Params({**model.params, key: WeightStore.from_packed(rows)})
    return dataclasses.replace(model, network=plain.network, params=params, config=config.values), plain
