"""RoBERTa (Liu et al. 2019, arXiv 1907.11692): BERT whose positions begin after that of the padding token."""

from __future__ import annotations

from volumetric.loaders.archs.bert import BertNames, bert_encoder
from volumetric.loaders.encoder_layers import MaskNames
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import ModelBlueprint

NAMES = BertNames(
    prefix="roberta.",
    mask=MaskNames(dense="lm_head.dense", norm="lm_head.layer_norm", decoder="lm_head.decoder", bias="lm_head.bias"),
    judge={"classifier.dense": "tanh", "classifier.out_proj": "linear"},
    ignored=(r"(?:roberta\.)?pooler\..*", r"lm_head\.decoder\.bias"),
)


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a RoBERTa configuration. Positions are counted from padding_idx + 1, as in fairseq."""
    return bert_encoder(config, NAMES, first_position=config.integer("pad_token_id", 1, low=0) + 1)
