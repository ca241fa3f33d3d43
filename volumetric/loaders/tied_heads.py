"""Heads that a configuration ties to the embedding, although the checkpoint has other weights for them."""

from __future__ import annotations

import logging
from typing import Final

import numpy as np

from volumetric.loaders import archs
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.nearest_family import not_supported
from volumetric.loaders.tensor_source import TensorSource

logger: logging.Logger = logging.getLogger(__name__)

_PIECE: Final = 1 << 24
"""Number of bytes that are compared at a time."""


def build_for(config: Config, source: TensorSource) -> tuple[Config, ModelBlueprint]:
    """Return the blueprint of a configuration, and the effective configuration of this checkpoint.

    If the configuration ties the head to the embedding, but the checkpoint has a head with other values, the head is
    used and a warning is logged, as in transformers.

    Raises
    ------
    UnsupportedError, CheckpointError
        As `archs.build`.
    """
    if config.family not in archs.families():
        raise not_supported(config, source.entries)
    blueprint = archs.build(config)
    for head, shared in blueprint.tied.items():
        names = (head, shared if shared in source.entries else shared.removeprefix(blueprint.prefix))
        if all(name in source.entries for name in names) and not _equal(source, *names):
            logger.warning(
                "%s ties %s to %s, but the weights have different values for both: they are not tied",
                config.where,
                *names,
            )
            config = config.with_values(tie_word_embeddings=False)
            return config, archs.build(config)
    return config, blueprint


def _equal(source: TensorSource, one: str, other: str) -> bool:
    """Whether two tensors have the same values and scheme; read in chunks until the first difference."""
    a, b = source.entries[one], source.entries[other]
    if (a.type, a.shape) != (b.type, b.shape):
        return False
    rows = max(1, _PIECE * a.shape[0] // max(a.nbytes, 1)) if a.shape else 1
    pieces = ((start, min(start + rows, a.shape[0])) for start in range(0, a.shape[0] if a.shape else 0, rows))
    same = all(
        np.array_equal(source.packed_rows(one, *piece).payload, source.packed_rows(other, *piece).payload)
        for piece in pieces
    )
    for name in (one, other):
        source.release(name)
    return same
