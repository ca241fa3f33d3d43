"""What a sculpted network differs in from the network that it was: values that can be compared, kept and undone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

Values = tuple[float | None, ...]
"""A number for each column of an input's row; None leaves the column as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedEdge:
    """An edge from one node of the scene to another; `delay` in ticks or rows, None: the smallest possible."""

    source: int
    target: int
    delay: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """Numbers that are added to an input from tick `first` to before tick `stop`, counted from the start."""

    name: str
    values: Values
    first: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All differences from the original network and its inputs. Nodes are indices of the scene.

    Attributes
    ----------
    masked : masked nodes
    cut : edges (source, target) that are cut
    added : edges that were added
    clocks : node, or name of an edge of a program → text of its clock; None: it has none
    thresholds : node of a layer with a threshold → threshold
    clamps : input → numbers in place of those of its rows
    pulses : numbers that are added to inputs for some ticks
    """

    masked: frozenset[int] = frozenset()
    cut: frozenset[tuple[int, int]] = frozenset()
    added: tuple[AddedEdge, ...] = ()
    clocks: Mapping[int | str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    thresholds: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    clamps: Mapping[str, Values] = field(default_factory=lambda: MappingProxyType({}))
    pulses: tuple[Pulse, ...] = ()

    @property
    def of_network(self) -> Changes:
        """The part that concerns the network, not its inputs."""
        return replace(self, clamps=MappingProxyType({}), pulses=())

    def with_entry(self, name: str, key: Any, value: Any) -> Changes:
        """Return a copy with one entry of a mapping set."""
        return replace(self, **{name: MappingProxyType({**getattr(self, name), key: value})})

    def __bool__(self) -> bool:
        """Return whether anything differs."""
        return any(bool(getattr(self, one.name)) for one in fields(self))
