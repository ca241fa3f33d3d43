"""Problems of packages of others, by the names that ``problem`` in a file has for them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Final

from volumetric.evolution.evaluate import Problem
from volumetric.registry import Registry

PROBLEMS: Final[Registry[Callable[..., Problem]]] = Registry(group="volumetric.problems")
"""Name → what makes the problem of the options that a file gives. Ours are in `volumetric.evolution.job`."""


def with_others(known: dict[str, Callable[..., Problem]]) -> Mapping[str, Callable[..., Problem]]:
    """Return problems with those of packages of others, also such as are registered later."""
    return ChainMap(known, PROBLEMS)
