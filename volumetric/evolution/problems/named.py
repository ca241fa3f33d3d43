"""Problems of packages of others, by the names that ``problem`` in a file has for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from volumetric.evolution.evaluate import Problem

PROBLEMS: Final[dict[str, Callable[..., Problem]]] = {}
"""Name → what makes the problem of the options that a file gives. Ours are in `volumetric.evolution.job`."""
