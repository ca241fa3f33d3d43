"""The norm of cells with heads: each head is normalised separately, with one gain per channel and no bias."""

from __future__ import annotations

import logging
from functools import cache

from volumetric.layers.layer_spec import ParamSpec

EPS = 1e-5
"""Added to the variance."""
_log = logging.getLogger(__name__)


@cache
def warn_of_narrow_heads(kind: str, heads: int) -> None:
    """Warn, once per kind and number, of heads with one element: their norm is always 0."""
    _log.warning("%s: the norm of %d heads of one element each is always 0: use fewer heads", kind, heads)


def head_norm_params(width: int) -> tuple[ParamSpec, ...]:
    """Return the gain."""
    return (ParamSpec(name="norm.weight", shape=(width,), init="ones", packable=False),)
