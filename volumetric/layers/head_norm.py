"""The norm of cells with heads: each head's part of a row about its own mean, with one gain a channel and no bias."""

from __future__ import annotations

import logging
from functools import cache

from volumetric.layers.base import ParamSpec

EPS = 1e-5
"""Is added to the variance."""
_log = logging.getLogger(__name__)


@cache
def warn_of_narrow_heads(kind: str, heads: int) -> None:
    """Warn, once for each, of heads of one number: each is its own mean, so that the norm makes it 0."""
    _log.warning("%s: %d heads of one number each are always 0 behind their norm: take fewer heads", kind, heads)


def head_norm_params(width: int) -> tuple[ParamSpec, ...]:
    """The gain."""
    return (ParamSpec(name="norm.weight", shape=(width,), init="ones", packable=False),)
