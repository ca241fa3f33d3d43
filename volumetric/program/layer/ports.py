"""Ports: parts of a row that go into a program, and that come out of it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from volumetric.layers.checks import check_choice, check_whole
from volumetric.program.layer.names import check_name

WIDEST = 2**24


class In(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="in"):
    """`dim` numbers of a row, which every position of a region gets through ``W x + b + code`` before the step.

    Attributes
    ----------
    region : that gets it
    dim : columns of the row
    write : in place of what was there (``"replace"``), or on top of it (``"add"``)
    """

    region: str
    dim: int
    write: Literal["replace", "add"] = "replace"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_name("In: a region", self.region)
        check_whole(f"In({self.region!r}): dim", self.dim, most=WIDEST)
        check_choice(f"In({self.region!r}): write", self.write, ("replace", "add"))


class Level(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="level"):
    """A number of a row: the noise level ᾱ, from 0 to 1, of what a diffusive region holds."""

    region: str

    def __post_init__(self) -> None:
        """Check the fields."""
        check_name("Level: a region", self.region)


class Signal(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="signal"):
    """A number of a row: not 0 where the event happens that clocks call by the port's name, ``on(name)``."""


class Out(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="out"):
    """`dim` numbers of a row, ``W LN(pool) + b`` of a region after the step.

    Attributes
    ----------
    region : that is read
    dim : columns of the row
    pool : the ``"mean"`` of its positions, or all of them side by side (``"flatten"``)
    """

    region: str
    dim: int
    pool: Literal["mean", "flatten"] = "mean"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_name("Out: a region", self.region)
        check_whole(f"Out({self.region!r}): dim", self.dim, most=WIDEST)
        check_choice(f"Out({self.region!r}): pool", self.pool, ("mean", "flatten"))


Port: TypeAlias = In | Level | Signal | Out
Input: TypeAlias = In | Level | Signal
"""Ports that have columns of the row that comes in."""


def width_of(port: Port) -> int:
    """Return how many columns a port has."""
    return port.dim if isinstance(port, In | Out) else 1
