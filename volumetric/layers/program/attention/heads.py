"""Attention by heads in NumPy: what rules with queries, keys, values and weights share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volumetric.errors import SpecError
from volumetric.layers.base import ParamSpec
from volumetric.layers.dense import affine_params
from volumetric.layers.program.attention.base import Attention, positive

if TYPE_CHECKING:
    pass

SHORTEST = 1e-24
"""Least square of a length; what is shorter counts as that long."""
QKVO = ("q.", "k.", "v.", "o.")
"""Maps of a rule with heads: to queries, keys and values, and from what the heads have read."""


def square_maps(d: int, *names: str) -> tuple[ParamSpec, ...]:
    """Parameters of affine maps from `d` to `d` features."""
    return tuple(param for name in names for param in affine_params(name, d, d, bias=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHeads(Attention):
    """Base of rules whose queries and keys meet head by head.

    Attributes
    ----------
    heads : parts of the width, each with weights of its own
    """

    heads: int = 4

    def __post_init__(self) -> None:
        """Check the fields."""
        positive(self, "heads")

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return self.maps(d)

    def maps(self, d: int, *prefixes: str) -> tuple[ParamSpec, ...]:
        """Parameters of the maps, below each prefix; raise `SpecError` where the heads do not divide the width `d`."""
        if d < 1 or d % self.heads:
            raise SpecError(
                f"{self.name}: {self.heads} heads do not divide a width of {d}",
                hint="give the edge, or the program, heads that do",
            )
        return square_maps(d, *(prefix + name for prefix in prefixes or ("",) for name in QKVO))
