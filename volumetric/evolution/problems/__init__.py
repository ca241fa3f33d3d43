"""Evolution problems: each is a `Problem` that scores all genomes at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from volumetric.base.registry import Registry
from volumetric.evolution.evaluate import Problem
from volumetric.evolution.novelty import NoveltySearch
from volumetric.evolution.problems.gym import Gym
from volumetric.evolution.problems.table_problem import Table, function, parity, xor

__all__ = ["PROBLEMS", "Gym", "NoveltySearch", "Table", "function", "parity", "xor"]

PROBLEMS: Final[Registry[Callable[..., Problem]]] = Registry(group="volumetric.problems")
"""Name → factory of a problem from the options of a file. Built-in ones: `volumetric.evolution.evolution_job`."""
