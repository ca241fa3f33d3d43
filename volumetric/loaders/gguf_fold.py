"""Adapt a model to GGUF files of its architecture: factors in the weights, a shared head as a tensor."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping
from typing import Final

from volumetric.layers import PositionEmbedding
from volumetric.loaders import archs
from volumetric.loaders.encoder_layers import trunk_of
from volumetric.loaders.gguf_family import GGUFFamily, Runs
from volumetric.loaders.hf_config import Config
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.name_rules import ModelBlueprint, NameRule
from volumetric.network import Network, Params
from volumetric.network.weight_store import WeightStore

_BLOCK: Final = re.compile(r"blk\.\d+\.")


def fold_factors(
    model: LoadedModel, blueprint: ModelBlueprint, family: GGUFFamily
) -> tuple[Network, tuple[NameRule, ...]]:
    """Return the network that a reader of the file builds, and the rules that fill the file from the model's weights.

    For most families both equal those of the model. If a factor is multiplied into a tensor, it moves from the network
    to the rule. A head that is shared with the embedding becomes a separate tensor if its factor differs, or if
    llama.cpp requires one.
    """
    untied = family.head == "own" and bool(blueprint.tied)
    if family.fold is None and not untied:
        return model.network, family.rules(blueprint).rules
    config = Config(model.config, model.name)
    factors: Mapping[str, Runs] = {}
    if family.fold is not None:
        config, factors = family.fold(config, blueprint.network)
    if untied:
        config = config.with_values(tie_word_embeddings=False)
    plain = archs.build(config)
    keys = {(rule.source, rule.part): rule.key for rule in blueprint.rules}
    keys |= {(name, None): keys[shared, None] for name, shared in blueprint.tied.items()}
    shapes = plain.network.param_specs()
    rules = [
        dataclasses.replace(
            named,
            key=keys[rule.source, rule.part],
            factors=_runs(named.source, factors, shapes[rule.key].shape[0]),
        )
        for rule, named in zip(plain.rules, family.rules(plain).rules, strict=True)
    ]
    return plain.network, tuple(rules)


def _runs(name: str, factors: Mapping[str, Runs], rows: int) -> tuple[tuple[int, float], ...]:
    """Factors of the rows of a tensor, empty if all are 1; a bias has the factors of its product."""
    own_factor = factors.get(_BLOCK.sub("", name).partition(".")[0], 1.0)
    runs = own_factor if isinstance(own_factor, tuple) else ((rows, own_factor),)
    return runs if any(factor != 1.0 for _, factor in runs) else ()


logger: logging.Logger = logging.getLogger(__name__)

LIKE_BERT: Final = ("roberta", "xlm_roberta")
"""Families that are written as BERT."""


def encoder_in_gguf(model: LoadedModel, blueprint: ModelBlueprint) -> tuple[LoadedModel, ModelBlueprint]:
    """Return an encoder without a masked language model head, and RoBERTa as an equivalent BERT.

    RoBERTa counts positions from after the padding token, so earlier rows are unused. Files leave these rows out, as
    llama.cpp's converter does, and use the BERT architecture.
    """
    if blueprint.hidden is not None:
        logger.warning("%s: GGUF has no form for the masked language model head: left out", model.name)
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
    rows = model.params[key].packed().slice_rows(table.offset, table.num_embeddings)
    params = Params({**model.params, key: WeightStore.from_packed(rows)})
    return dataclasses.replace(model, network=plain.network, params=params, config=config.values), plain
