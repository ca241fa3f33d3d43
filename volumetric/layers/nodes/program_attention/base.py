"""What the nodes of a rule are emitted from, and how masks part what a rule sees as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

import numpy as np

from volumetric._typing import Array
from volumetric.errors import ShapeError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.program.attention import Attention, Pairs
from volumetric.registry import Registry, modules_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Edges that read alike, side by side.

    Attributes
    ----------
    rule : of all of them
    p : parameters by name, ``[E, …]``
    queries, keys, values : ``[E or 1, B, N, d]``, and ``[E or 1, B, M, d]``; where `p` has no maps for keys and values
        of a rule `BY_HEADS`, they are mapped already
    pairs : who sees whom
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
        """Edges, streams and width."""
        edges = [self.work.shape(i)[0] for i in (self.queries, self.keys, self.values, *self.p.values())]
        _, batch, _, d = self.work.shape(self.queries)
        return max(edges), batch, d


Lowering: TypeAlias = Callable[[Reading], int]
"""Emits what is read, ``[E, B, N, d]``; what is not written may be anything."""

DECLARED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "by_heads": "cross linear cosine sigmoid gated sparse local random_fixed",
        "composed": "perceiver mixture",
        "frequencies": "hyena",
        "moved": "pooling copy none",
        "scanned": "mamba rwkv",
    }
)
"""Module → rules whose nodes it emits."""
BY_HEADS: Final = frozenset(DECLARED["by_heads"].split())
"""Rules whose keys and values are maps of what is read, row by row."""
LOWERINGS: Registry[Lowering] = Registry(modules_of("volumetric.layers.nodes.program_attention", DECLARED))
L = TypeVar("L", bound=Lowering)


def lowering(*names: str) -> Callable[[L], L]:
    """Register what emits the nodes of rules."""

    def register(function: L) -> L:
        LOWERINGS.update(dict.fromkeys(names, function))
        return function

    return register


def stacked(work: GraphBuilder, tensors: Sequence[int]) -> int:
    """Emit tensors of one shape side by side along a new first axis."""
    shape = work.shape(tensors[0])
    if not shape:
        return work.concat([work.reshape(i, (1,)) for i in tensors], 0)
    return work.reshape(work.concat(tensors, 0), (len(tensors), *shape))  # along their own first axis: fewer nodes


def attend(
    work: GraphBuilder,
    rule: Attention,
    p: Mapping[str, int],
    queries: int,
    source: int,
    pairs: Pairs,
    values: int | None = None,
) -> int:
    """Emit what `Attention.forward` computes, for edges side by side.

    Parameters
    ----------
    p : parameters by name, ``[E, …]``; without those of ``k.`` and ``v.`` rows are keys and values as they are
    queries : ``[E, B, N, d]``, or ``[1, B, N, d]`` for all edges
    source, values : ``[E, B, M, d]`` or ``[1, B, M, d]``
    pairs : who sees whom, the same for all edges

    Returns
    -------
    ``[E, B, N, d]``, zeros where `Attention.written` says that nothing is

    Raises
    ------
    ShapeError
        Tensors are of other sizes than `pairs`.
    """
    of = Reading(
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
            raise ShapeError(f"{rule.name}: {what} are {[edges, batch, count, d]}, got {list(work.shape(i))}")
    if rule.whole and pairs.mask is not None:
        return _by_parts(of)
    y, written = LOWERINGS[rule.name](of), rule.written(pairs)
    if not written.all():
        y = work.binary("mul_nonzero", y, work.constant(written.astype(np.float64).reshape(1, 1, -1, 1), "written"))
    return work.broadcast(y, (edges, batch, pairs.queries, d))


def _by_parts(of: Reading) -> int:
    """Emit a rule that sees its source as a whole, once for all parts of a mask that are equally large."""
    work, pairs = of.work, of.pairs
    edges, batch, d = of.size
    alike: dict[tuple[int, int], list[tuple[Array, Array]]] = {}
    for ids, keys in pairs.parts:
        alike.setdefault((len(ids), len(keys)), []).append((ids, keys))
    from_ = np.full((edges, batch, pairs.queries), -1, np.int64)
    made: list[int] = []
    count = 0
    for (asks, told), parts in alike.items():
        ids, keys = (np.stack([part[side] for part in parts]) for side in (0, 1))
        own = Reading(
            work=work,
            rule=of.rule,
            p=of.p,
            queries=_taken(work, of.queries, ids),
            keys=_taken(work, of.keys, keys),
            values=_taken(work, of.values, keys),
            pairs=Pairs(asks, told),
        )
        size = (edges, batch, len(parts), asks)
        y = work.broadcast(LOWERINGS[of.rule.name](own), (edges, batch * len(parts), asks, d))
        made.append(work.reshape(y, (int(np.prod(size)), d)))
        from_[:, :, ids.reshape(-1)] = count + np.arange(np.prod(size)).reshape(edges, batch, -1)
        count += int(np.prod(size))
    if (from_ < 0).any():
        from_[from_ < 0] = count
        made.append(work.zeros((1, d)))
    rows = work.gather_rows(work.concat(made, 0), work.constant(from_.reshape(-1).astype(np.int32), "rows"))
    return work.reshape(rows, (edges, batch, pairs.queries, d))


def _taken(work: GraphBuilder, x: int, ids: Array) -> int:
    """Emit positions ``[parts, n]`` of ``[E, B, N, d]`` as ``[E, B · parts, n, d]``."""
    edges, batch, count, d = work.shape(x)
    whole = np.arange(edges * batch)[:, None] * count + ids.reshape(-1)
    table = work.reshape(x, (edges * batch * count, d))
    rows = work.gather_rows(table, work.constant(whole.reshape(-1).astype(np.int32), "positions"))
    return work.reshape(rows, (edges, batch * len(ids), ids.shape[1], d))
