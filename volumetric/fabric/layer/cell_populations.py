"""Declarations of populations of cells, and of ports."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.fabric.layer.node_sets import Nodes, nodes_of
from volumetric.layers.field_checks import check_choice, check_text, check_whole
from volumetric.layers.head_norm import warn_of_narrow_heads

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_TILE = re.compile(r"tile\((\d{1,6}(?:,\d{1,6}){0,3})\)")


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise SpecError(
            f"{what} cannot be called {format_value(name)}",
            hint='a name is a letter or "_", then letters, digits, "_" and "-", at most 64 characters',
        )


class SLSTM(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="slstm"):
    """A cell with exponential gates: `layers.SLSTM` without its convolution; neighbours read its normalised y."""

    hidden: int
    heads: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("SLSTM: hidden", self.hidden)
        check_whole("SLSTM: heads", self.heads)
        if self.hidden % self.heads:
            raise SpecError(f"SLSTM: {self.heads} heads do not divide a width of {self.hidden}")
        if self.silent:
            warn_of_narrow_heads("SLSTM", self.heads)

    @property
    def silent(self) -> bool:
        """Whether its public output is always 0, because its norm is over heads of one number."""
        return self.heads == self.hidden


class Axon(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="axon"):
    """A cell of rotating, decaying pairs, see `layers.Axon`, read through silu; `width` pairs, default `hidden`."""

    hidden: int
    width: int | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("Axon: hidden", self.hidden)
        if self.width is not None:
            check_whole("Axon: width", self.width)

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.width or self.hidden


class LSTM(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="lstm"):
    """The cell of `layers.LSTM`."""

    hidden: int

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("LSTM: hidden", self.hidden)


class GRU(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="gru"):
    """The cell of `layers.GRU`."""

    hidden: int

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("GRU: hidden", self.hidden)


class RNN(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="rnn"):
    """The cell of `layers.RNN`."""

    hidden: int
    nonlinearity: Literal["tanh", "relu"] = "tanh"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("RNN: hidden", self.hidden)
        check_choice("RNN: nonlinearity", self.nonlinearity, ("tanh", "relu"))


AGGREGATES = ("mean", "flatten", "attend")
"""Reductions of an output's nodes to one row."""

Cell: TypeAlias = SLSTM | Axon | LSTM | GRU | RNN
"""Kinds of cells."""


class CellPopulation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Nodes with cells of one kind.

    Attributes
    ----------
    name : name in the keys of its parameters and states
    cell : cell of each node
    nodes : nodes of the population; None: all recurrent nodes of no other population
    share : nodes that share weights: ``"none"``, ``"all"``, or those in a tile, ``"tile(4,4)"``
    """

    name: str
    cell: Cell
    nodes: Nodes | None = None
    share: str = "none"

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_name(self.name, "a population")
        if not isinstance(self.cell, Cell):
            raise SpecError(
                f"population {self.name!r}: cell is no cell, got {format_value(self.cell)}", hint="GRU(hidden=32)"
            )
        if self.nodes is not None:
            force_setattr(self, "nodes", nodes_of(f"population {self.name!r}: nodes", self.nodes))
        check_text(f"population {self.name!r}: share", self.share)
        if self.share not in ("none", "all") and self.tile is None:
            raise SpecError(
                f"population {self.name!r}: unknown share {self.share!r}", hint='"none", "all", or "tile(4,4)"'
            )

    @property
    def tile(self) -> tuple[int, ...] | None:
        """Sides of the tiles that share weights."""
        match = _TILE.fullmatch(self.share.replace(" ", ""))
        return None if match is None else tuple(map(int, match[1].split(",")))


class InPort(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An input: `dim` columns of the input row, which its nodes take, each through its own matrix."""

    name: str
    nodes: Nodes
    dim: int

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_name(self.name, "an input")
        force_setattr(self, "nodes", nodes_of(f"input {self.name!r}: nodes", self.nodes))
        check_whole(f"input {self.name!r}: dim", self.dim)


class OutPort(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An output: `dim` columns of the output row, computed from its nodes.

    Attributes
    ----------
    aggregate : reduction: the ``"mean"`` of its nodes, their concatenation (``"flatten"``), or attention over them by
        `slots` learned queries (``"attend"``)
    """

    name: str
    nodes: Nodes
    dim: int
    aggregate: Literal["mean", "flatten", "attend"] = "mean"
    slots: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_name(self.name, "an output")
        force_setattr(self, "nodes", nodes_of(f"output {self.name!r}: nodes", self.nodes))
        check_whole(f"output {self.name!r}: dim", self.dim)
        check_whole(f"output {self.name!r}: slots", self.slots)
        check_choice(f"output {self.name!r}: aggregate", self.aggregate, AGGREGATES)
