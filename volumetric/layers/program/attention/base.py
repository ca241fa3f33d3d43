"""What an attention rule is: how the positions that an edge writes read those of its source."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar, dataclass_transform

import numpy as np

from volumetric._typing import Array
from volumetric.errors import ShapeError, SpecError
from volumetric.hints import suggestion
from volumetric.layers.base import ParamSpec
from volumetric.layers.program import names
from volumetric.registry import Registry, modules_of


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Who may read whom: an edge's positions as an attention rule sees them.

    Attributes
    ----------
    queries, keys : how many positions are written, N, and read, M
    mask : bool ``[N, M]``, whether a query may see a key; None: all may
    places : coordinates on the canvas of queries ``[N, axes]`` and of keys ``[M, axes]``, for rules that go by distance

    Raises
    ------
    ShapeError
        There is nothing to write or nothing to read, or mask or places are of other positions.
    """

    queries: int
    keys: int
    mask: Array | None = None
    places: tuple[Array, Array] | None = None

    def __post_init__(self) -> None:
        """Check the sizes."""
        for count, what in ((self.queries, "writes"), (self.keys, "reads")):
            if count < 1:
                raise ShapeError(f"an edge {what} no position", hint="a region has at least one")
        size = (self.queries, self.keys)
        if self.mask is not None and (self.mask.shape != size or self.mask.dtype != np.bool_):
            raise ShapeError(
                f"a mask of {self.queries} queries and {self.keys} keys is bool {list(size)}, "
                f"got {self.mask.dtype} {list(self.mask.shape)}"
            )
        if self.places is not None:
            axes = {place.shape[1:] for place in self.places}
            if tuple(len(place) for place in self.places) != size or len(axes) != 1 or len(axes.pop()) != 1:
                shapes = " and ".join(str(list(place.shape)) for place in self.places)
                raise ShapeError(f"places are [{size[0]}, axes] and [{size[1]}, axes], got {shapes}")

    @property
    def parts(self) -> list[tuple[Array, Array]]:
        """Queries that see the same keys, with these keys, both rising; not those that see none."""
        if self.mask is None:
            return [(np.arange(self.queries), np.arange(self.keys))]
        rows, part = np.unique(self.mask, axis=0, return_inverse=True)
        groups = (np.flatnonzero(part.reshape(-1) == n) for n in range(len(rows)))
        found = [(ids, np.flatnonzero(row)) for ids, row in zip(groups, rows, strict=True) if row.any()]
        return sorted(found, key=lambda of: int(of[0][0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Base of all rules: ``a = attend(queries, source)``, ``[B, N, d]`` from ``[B, N, d]`` and ``[B, M, d]``.

    Rules are declared with `attention`, one file each, and are plain values: what an edge learns is in its parameters.
    """

    name: ClassVar[str] = ""
    whole: ClassVar[bool] = False
    """Whether what a query reads depends on more than single pairs with the keys it sees, such as on their order. A
    mask then parts the queries by the keys that they see; each part is computed as if there were no others."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        """Return the parameters of an edge, for rows of width `d` and a number of positions written.

        Raises `SpecError` where the rule cannot have such rows.
        """
        raise NotImplementedError(self.name)

    def seen(self, pairs: Pairs) -> Array | None:
        """Which query reads which key, bool ``[N, M]``; None: each reads all."""
        return pairs.mask

    def written(self, pairs: Pairs) -> Array:
        """Which queries get something: bool ``[N]``. The others are as if there were no edge."""
        seen = self.seen(pairs)
        return np.ones(pairs.queries, np.bool_) if seen is None else np.asarray(np.any(seen, axis=1))


RULES: Registry[type[Attention]] = Registry(
    modules_of("volumetric.layers.program.attention", dict(zip(names.RULES, names.RULES, strict=True)))
)
"""Name → rule, filled by `attention`."""

A = TypeVar("A", bound=type[Attention])


@dataclass_transform(frozen_default=True, kw_only_default=True)
def attention(name: str) -> Callable[[A], A]:
    """Make a class a frozen rule and register it under a name."""

    def declare(cls: A) -> A:
        made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        made.name = name
        RULES[name] = made
        return made

    return declare


def rule_of(name: str, options: Mapping[str, int | float | str] | None = None, heads: int | None = None) -> Attention:
    """Return a rule.

    Parameters
    ----------
    name : of the rule, or another name of it
    options : its fields
    heads : of a rule that has heads, unless its options tell; None: as it is by default

    Raises
    ------
    SpecError
        No rule has this name, it has no such option, or the option cannot be this.
    """
    known = [*names.RULES, *names.ALIASES]
    if name not in known and not RULES.declared(name):
        listed = "one of " + ", ".join(sorted(names.RULES))
        raise SpecError(f"no attention rule is called {name!r}", hint=suggestion(name, known, listed))
    of = RULES[names.ALIASES.get(name, name)]
    fields = [f.name for f in dataclasses.fields(of)]
    for option in options or {}:
        if option not in fields:
            listed = "it has " + (", ".join(fields) or "none")
            hint = suggestion(option, fields, listed)
            raise SpecError(f"the rule {of.name} has no option {option!r}", hint=hint)
    given = {"heads": heads} if heads is not None and "heads" in fields else {}
    return of(**given | dict(options or {}))  # pyright: ignore[reportArgumentType]  (rules check their fields)


def positive(rule: Attention, *names: str) -> None:
    """Raise `SpecError` unless each named field is a whole number above zero."""
    for name in names:
        value = getattr(rule, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SpecError(f"{rule.name}: {name} must be a whole number above 0, got {value!r}")
