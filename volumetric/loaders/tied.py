"""Heads that a configuration ties to the embedding though the checkpoint has other weights for them."""

from __future__ import annotations

import logging
from typing import Final

import numpy as np

from volumetric.loaders import archs
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint
from volumetric.loaders.nearest import not_supported
from volumetric.loaders.source import TensorSource

logger = logging.getLogger(__name__)

_PIECE: Final = 1 << 24
"""Bytes that are compared at a time."""


def build_for(config: Config, source: TensorSource) -> tuple[Config, Blueprint]:
    """Return what a family makes of a configuration, and the configuration that counts for this checkpoint.

    Where the configuration ties the head to the embedding, and the checkpoint holds a head with other numbers, the head
    counts and a warning says so, as in transformers: who trained it so meant it, or forgot to say it.

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
                "%s ties %s to %s, and the weights hold both with different values: they are not tied",
                config.where,
                *names,
            )
            config = config.with_values(tie_word_embeddings=False)
            return config, archs.build(config)
    return config, blueprint


def _equal(source: TensorSource, one: str, other: str) -> bool:
    """Whether two tensors are the same numbers in the same form; read in pieces, and no further than need be."""
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
