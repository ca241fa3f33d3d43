"""Base of attention rules: how the positions that an edge writes (queries) read those of its source (keys)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias, TypeVar, dataclass_transform

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.base.hints import suggestion
from volumetric.base.registry import Registry, modules_of
from volumetric.graph.build import GraphBuilder
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer import name_checks


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Queries and keys of an edge, for attention rules.

    Attributes
    ----------
    queries, keys : number of positions written, N, and read, M
    mask : bool ``[N, M]``, whether a query may attend to a key; None: no mask
    places : canvas coordinates of queries ``[N, axes]`` and of keys ``[M, axes]``, for rules by distance

    Raises
    ------
    ShapeError
        There are no queries or no keys, or mask or places have other shapes.
    """

    queries: int
    keys: int
    mask: Array | None = None
    places: tuple[Array, Array] | None = None

    def __post_init__(self) -> None:
        """Check the sizes."""
        for count, what in ((self.queries, "writes"), (self.keys, "reads")):
            if count < 1:
                raise ShapeError(f"an edge {what} no position", hint="a region needs at least one")
        size = (self.queries, self.keys)
        if self.mask is not None and (self.mask.shape != size or self.mask.dtype != np.bool_):
            raise ShapeError(
                f"a mask of {self.queries} queries and {self.keys} keys must be bool {list(size)}, "
                f"got {self.mask.dtype} {list(self.mask.shape)}"
            )
        if self.places is not None:
            axes = {place.shape[1:] for place in self.places}
            if tuple(len(place) for place in self.places) != size or len(axes) != 1 or len(axes.pop()) != 1:
                shapes = " and ".join(str(list(place.shape)) for place in self.places)
                raise ShapeError(f"places must be [{size[0]}, axes] and [{size[1]}, axes], got {shapes}")

    @property
    def parts(self) -> list[tuple[Array, Array]]:
        """Groups of queries with the same keys, and these keys, both ascending; without queries that have no keys."""
        if self.mask is None:
            return [(np.arange(self.queries), np.arange(self.keys))]
        rows, part = np.unique(self.mask, axis=0, return_inverse=True)
        groups = (np.flatnonzero(part.reshape(-1) == n) for n in range(len(rows)))
        parts = [(ids, np.flatnonzero(row)) for ids, row in zip(groups, rows, strict=True) if row.any()]
        return sorted(parts, key=lambda of: int(of[0][0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Base of all rules: ``a = attend(queries, source)``, ``[B, N, d]`` from ``[B, N, d]`` and ``[B, M, d]``.

    Rules are declared with `register_rule` and are plain values: learned weights are parameters of edges.
    """

    name: ClassVar[str] = ""
    whole: ClassVar[bool] = False
    """Whether the result of a query depends on more than its single pairs with keys, for example on their order. A mask
    then partitions the queries by their keys; each part is computed independently."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        """Return the parameters of an edge, for rows of width `d` and a number of positions written.

        Raises `SpecError` if the rule does not support this width.
        """
        raise NotImplementedError(self.name)

    def visible(self, pairs: Pairs) -> Array | None:
        """Return which query reads which key, bool ``[N, M]``; None: each reads all."""
        return pairs.mask

    def written_queries(self, pairs: Pairs) -> Array:
        """Return which queries are written, bool ``[N]``; for the others the edge has no effect."""
        visible = self.visible(pairs)
        return np.ones(pairs.queries, np.bool_) if visible is None else np.asarray(np.any(visible, axis=1))


DECLARED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "head_rules": "cross linear cosine sigmoid gated sparse local random_fixed",
        "composed_rules": "perceiver mixture",
        "fft_rules": "hyena",
        "row_rules": "pooling copy none",
        "scan_rules": "mamba rwkv",
    }
)
"""Module → rules that it declares."""

RULES: Registry[type[Attention]] = Registry(
    modules_of("volumetric.program.layer.attention", DECLARED), group="volumetric.attention"
)
"""Name → rule, filled by `register_rule`."""

A = TypeVar("A", bound=type[Attention])


@dataclass_transform(frozen_default=True, kw_only_default=True)
def register_rule(name: str) -> Callable[[A], A]:
    """Register a class as a frozen rule under a name."""

    def declare(cls: A) -> A:
        rule = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        rule.name = name
        RULES[name] = rule
        return rule

    return declare


def rule_of(name: str, options: Mapping[str, int | float | str] | None = None, heads: int | None = None) -> Attention:
    """Return a rule.

    Parameters
    ----------
    name : name of the rule, or an alias
    options : fields of the rule
    heads : number of heads, if the rule has heads and `options` do not set it; None: the rule's default

    Raises
    ------
    SpecError
        The rule or an option is unknown, or the value of an option is invalid.
    """
    known = [*name_checks.RULES, *name_checks.ALIASES]
    if name not in known and not RULES.is_declared(name):
        listed = "use one of " + ", ".join(sorted(name_checks.RULES))
        raise SpecError(f"there is no attention rule {name!r}", hint=suggestion(name, known, listed))
    of = RULES[name_checks.ALIASES.get(name, name)]
    fields = [f.name for f in dataclasses.fields(of)]
    for option in options or {}:
        if option not in fields:
            listed = "its options are " + (", ".join(fields) or "none")
            hint = suggestion(option, fields, listed)
            raise SpecError(f"the rule {of.name} has no option {option!r}", hint=hint)
    head_options = {"heads": heads} if heads is not None and "heads" in fields else {}
    return of(**head_options | dict(options or {}))  # pyright: ignore[reportArgumentType]  (rules check their fields)


def check_positive(rule: Attention, *names: str) -> None:
    """Raise `SpecError` unless each named field is a whole number above zero."""
    for name in names:
        value = getattr(rule, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SpecError(f"{rule.name}: {name} must be a whole number above 0, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionInputs:
    """A batch of edges with the same rule and sizes.

    Attributes
    ----------
    rule : rule of all edges
    p : parameters by name, ``[E, …]``
    queries, keys, values : ``[E or 1, B, N, d]``, and ``[E or 1, B, M, d]``; if `p` has no maps for keys and values
        of a rule `BY_HEADS`, they are already projected
    pairs : queries and keys
    """

    work: GraphBuilder
    rule: Attention
    p: Mapping[str, int]
    queries: int
    keys: int
    values: int
    pairs: Pairs

    @property
    def size(self) -> tuple[int, int, int]:
        """Numbers of edges and streams, and the width."""
        edges = [self.work.shape(i)[0] for i in (self.queries, self.keys, self.values, *self.p.values())]
        _, batch, _, d = self.work.shape(self.queries)
        return max(edges), batch, d


Lowering: TypeAlias = Callable[[AttentionInputs], int]
"""Emits the results, ``[E, B, N, d]``; values of queries that are not written are arbitrary."""

BY_HEADS: Final = frozenset(DECLARED["head_rules"].split())
"""Rules whose keys and values are projections of single rows."""
LOWERINGS: Registry[Lowering] = Registry(modules_of("volumetric.program.layer.attention", DECLARED), group=RULES.group)
L = TypeVar("L", bound=Lowering)


def lowering(*names: str) -> Callable[[L], L]:
    """Register the function that emits the nodes of rules."""

    def register(function: L) -> L:
        LOWERINGS.update(dict.fromkeys(names, function))
        return function

    return register


def stack_tensors(work: GraphBuilder, tensors: Sequence[int]) -> int:
    """Emit tensors of one shape, stacked along a new first axis."""
    shape = work.shape(tensors[0])
    if not shape:
        return work.concat([work.reshape(i, (1,)) for i in tensors], 0)
    return work.reshape(work.concat(tensors, 0), (len(tensors), *shape))  # concat along the first axis: fewer nodes


def attend(
    work: GraphBuilder,
    rule: Attention,
    p: Mapping[str, int],
    queries: int,
    source: int,
    pairs: Pairs,
    values: int | None = None,
) -> int:
    """Emit the attention of a batch of edges.

    Parameters
    ----------
    p : parameters by name, ``[E, …]``; without those of ``k.`` and ``v.``, rows are already projected keys and values
    queries : ``[E, B, N, d]``, or ``[1, B, N, d]`` for all edges
    source, values : ``[E, B, M, d]`` or ``[1, B, M, d]``
    pairs : queries and keys, the same for all edges

    Returns
    -------
    ``[E, B, N, d]``, zeros for queries that are not written, see `Attention.written`

    Raises
    ------
    ShapeError
        Shapes of tensors do not match `pairs`.
    """
    of = AttentionInputs(
        work=work,
        rule=rule,
        p=p,
        queries=queries,
        keys=source,
        values=source if values is None else values,
        pairs=pairs,
    )
    edges, batch, d = of.size
    for what, i, count in (
        ("queries", queries, pairs.queries),
        ("source", source, pairs.keys),
        ("values", of.values, pairs.keys),
    ):
        lead, *size = work.shape(i)
        if size != [batch, count, d] or lead not in (1, edges):
            raise ShapeError(f"{rule.name}: {what} must be {[edges, batch, count, d]}, got {list(work.shape(i))}")
    if rule.whole and pairs.mask is not None:
        return _by_parts(of)
    y, written = LOWERINGS[rule.name](of), rule.written_queries(pairs)
    if not written.all():
        y = work.binary("mul_nonzero", y, work.constant(written.astype(np.float64).reshape(1, 1, -1, 1), "written"))
    return work.broadcast(y, (edges, batch, pairs.queries, d))


def _by_parts(of: AttentionInputs) -> int:
    """Emit a rule that reads its source as a whole, once for all parts of a mask of equal sizes."""
    work, pairs = of.work, of.pairs
    edges, batch, d = of.size
    alike: dict[tuple[int, int], list[tuple[Array, Array]]] = {}
    for ids, keys in pairs.parts:
        alike.setdefault((len(ids), len(keys)), []).append((ids, keys))
    from_ = np.full((edges, batch, pairs.queries), -1, np.int64)
    tables: list[int] = []
    count = 0
    for (query_count, key_count), parts in alike.items():
        ids, keys = (np.stack([part[side] for part in parts]) for side in (0, 1))
        own = AttentionInputs(
            work=work,
            rule=of.rule,
            p=of.p,
            queries=_gather_parts(work, of.queries, ids),
            keys=_gather_parts(work, of.keys, keys),
            values=_gather_parts(work, of.values, keys),
            pairs=Pairs(query_count, key_count),
        )
        size = (edges, batch, len(parts), query_count)
        y = work.broadcast(LOWERINGS[of.rule.name](own), (edges, batch * len(parts), query_count, d))
        tables.append(work.reshape(y, (int(np.prod(size)), d)))
        from_[:, :, ids.reshape(-1)] = count + np.arange(np.prod(size)).reshape(edges, batch, -1)
        count += int(np.prod(size))
    if (from_ < 0).any():
        from_[from_ < 0] = count
        tables.append(work.zeros((1, d)))
    rows = work.gather_rows(work.concat(tables, 0), work.constant(from_.reshape(-1).astype(np.int32), "rows"))
    return work.reshape(rows, (edges, batch, pairs.queries, d))


def _gather_parts(work: GraphBuilder, x: int, ids: Array) -> int:
    """Emit positions ``[parts, n]`` of ``[E, B, N, d]`` as ``[E, B · parts, n, d]``."""
    edges, batch, count, d = work.shape(x)
    whole = np.arange(edges * batch)[:, None] * count + ids.reshape(-1)
    table = work.reshape(x, (edges * batch * count, d))
    rows = work.gather_rows(table, work.constant(whole.reshape(-1).astype(np.int32), "positions"))
    return work.reshape(rows, (edges, batch * len(ids), ids.shape[1], d))
