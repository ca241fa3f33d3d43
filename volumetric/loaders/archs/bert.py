"""BERT (Devlin et al. 2018, arXiv 1810.04805): learned positions, token types, post-norm blocks, two heads."""

from __future__ import annotations

from volumetric.loaders.bert_layers import BertNames, bert_encoder
from volumetric.loaders.encoder_layers import MaskNames
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint

NAMES = BertNames(
    prefix="bert.",
    mask=MaskNames(
        dense="cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        decoder="cls.predictions.decoder",
        bias="cls.predictions.bias",
    ),
    judge={"bert.pooler.dense": "tanh", "classifier": "linear"},
    # The pooler of checkpoints that no head reads, the second half of the first training, and a copied bias.
    ignored=(r"(?:bert\.)?pooler\..*", r"cls\.seq_relationship\..*", r"cls\.predictions\.decoder\.bias"),
)


def build(config: Config) -> Blueprint:
    """Network and rules of a BERT configuration."""
    return bert_encoder(config, NAMES)
