"""Problems to evolve for, each a `Problem`: fitness for all genomes at once."""

from __future__ import annotations

from volumetric.evolution.problems.functions import function
from volumetric.evolution.problems.gym import Gym
from volumetric.evolution.problems.named import PROBLEMS
from volumetric.evolution.problems.novel import NoveltySearch
from volumetric.evolution.problems.parity import parity
from volumetric.evolution.problems.table import Table
from volumetric.evolution.problems.xor import xor

__all__ = ["PROBLEMS", "Gym", "NoveltySearch", "Table", "function", "parity", "xor"]
