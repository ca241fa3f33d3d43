"""Evolution problems: each is a `Problem` that scores all genomes at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from volumetric.base.registry import Registry
from volumetric.evolution.evaluate import Problem
from volumetric.evolution.novelty import NoveltySearch
from volumetric.evolution.problems.gym import Gym
from volumetric.evolution.problems.table_problem import Table, function, parity, xor

__all__ = ["PROBLEMS", "Gym", "NoveltySearch", "Table", "function", "parity", "problem", "xor"]

F = TypeVar("F", bound="Callable[..., Problem]")

PROBLEMS: Final[Registry[Callable[..., Problem]]] = Registry(group="volumetric.problems")
"""Name → factory of a problem from the options of a file. Built-in ones: `volumetric.evolution.evolution_job`."""


def problem(name: str) -> Callable[[F], F]:
    """Register a function that returns a problem, under a name that files take as ``problem = "name"``.

    Its arguments are the options of ``problem = { kind = "name", … }``. It returns a fitness function, marked with
    `batched` or not, or a `Problem`.
    """

    def declare(function: F) -> F:
        PROBLEMS.declare(name, function, function.__module__)
        return function

    return declare
