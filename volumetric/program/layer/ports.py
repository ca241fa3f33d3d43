"""Ports: columns of a program's input and output rows."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from volumetric.layers.field_checks import check_choice, check_whole
from volumetric.program.layer.name_checks import check_name

WIDEST = 2**24


class In(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="in"):
    """An input of `dim` columns, written to every position of a region as ``W x + b + code`` before the step.

    Attributes
    ----------
    region : region to write
    dim : number of columns of the row
    write : replace the content (``"replace"``), or add to it (``"add"``)
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
    """An input of one column: the noise level ᾱ, from 0 to 1, of a diffusive region's content."""

    region: str

    def __post_init__(self) -> None:
        """Check the fields."""
        check_name("Level: a region", self.region)


class Signal(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="signal"):
    """An input of one column: nonzero means that the event of the port's name happens, ``on(name)`` in clocks."""


class Out(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="out"):
    """An output of `dim` columns: ``W LN(pool) + b`` of a region after the step.

    Attributes
    ----------
    region : region to read
    dim : number of columns of the row
    pool : the ``"mean"`` of its positions, or their concatenation (``"flatten"``)
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
"""Ports with columns of the input row."""


def width_of(port: Port) -> int:
    """Return the number of columns of a port."""
    return port.dim if isinstance(port, In | Out) else 1
