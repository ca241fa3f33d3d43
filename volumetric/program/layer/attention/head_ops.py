"""Multi-head attention: shared nodes of rules with queries, keys, values and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.cross_attention import SIDES, cross_attend, is_small
from volumetric.layers.dense import affine_params
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer.attention.rule_base import Attention, Pairs, check_positive

if TYPE_CHECKING:
    pass

SHORTEST = 1e-24
"""Minimum squared length of a vector in normalisation."""
QKVO = ("q.", "k.", "v.", "o.")
"""Projections of a rule with heads: of queries, keys, values and outputs."""


def square_maps(d: int, *names: str) -> tuple[ParamSpec, ...]:
    """Return the parameters of affine maps from `d` to `d` features."""
    return tuple(param for name in names for param in affine_params(name, d, d, bias=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHeads(Attention):
    """Base of multi-head rules.

    Attributes
    ----------
    heads : number of heads, into which the width is split
    """

    heads: int = 4

    def __post_init__(self) -> None:
        """Check the fields."""
        check_positive(self, "heads")

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return self.maps(d)

    def maps(self, d: int, *prefixes: str) -> tuple[ParamSpec, ...]:
        """Return the parameters of the maps for each prefix; raise `SpecError` if heads do not divide the width `d`."""
        if d < 1 or d % self.heads:
            raise SpecError(
                f"{self.name}: {self.heads} heads do not divide a width of {d}",
                hint="set heads of the edge, or of the program, to a divisor",
            )
        return square_maps(d, *(prefix + name for prefix in prefixes or ("",) for name in QKVO))


def affine(work: GraphBuilder, p: Mapping[str, int], name: str, x: int) -> int:
    """Emit ``x Wᵀ + b`` of each edge: ``[E or 1, B, N, in]`` → ``[E, B, N, out]``."""
    lead, batch, count, width = work.shape(x)
    edges, wide, _ = work.shape(p[name + "weight"])
    rows = work.reshape(x, (lead, batch * count, width))
    y = work.gemm(rows, p[name + "weight"], p[name + "bias"], trans_b=True, groups=edges)
    return work.reshape(y, (edges, batch, count, wide))


def split_heads(work: GraphBuilder, x: int, heads: int) -> int:
    """Emit ``[E, B, N, d]`` as ``[E · B · heads, N, e]``."""
    edges, batch, count, d = work.shape(x)
    split = work.reshape(x, (edges * batch, count, heads, d // heads))
    return work.reshape(work.permute(split, (0, 2, 1, 3)), (edges * batch * heads, count, d // heads))


def join_heads(work: GraphBuilder, x: int, edges: int, heads: int) -> int:
    """Emit ``[E · B · heads, N, e]`` as ``[E, B, N, heads · e]``."""
    groups, count, e = work.shape(x)
    split = work.permute(work.reshape(x, (groups // heads, heads, count, e)), (0, 2, 1, 3))
    return work.reshape(split, (edges, groups // heads // edges, count, heads * e))


def project_heads(work: GraphBuilder, p: Mapping[str, int], name: str, x: int, heads: int) -> int:
    """Emit queries, keys or values of heads, ``[E · B · heads, N, e]``; without a map, `x` is already projected."""
    return split_heads(work, affine(work, p, name, x) if f"{name}weight" in p else x, heads)


def map_constants(work: GraphBuilder, p: Mapping[str, int], name: str, rows: Sequence[int]) -> int:
    """Emit keys or values of rows ``[M, d]``, concatenated to ``[len(rows) · M, d]``; all edges have equal counts."""
    edges, d, _ = work.shape(p[f"{name}weight"])
    whole = work.reshape(work.concat(rows, 0), (edges, 1, sum(work.shape(x)[0] for x in rows) // edges, d))
    y = affine(work, p, name, whole)
    return work.reshape(y, (edges * work.shape(y)[2], d))


def scores(work: GraphBuilder, p: Mapping[str, int], heads: int, queries: int, keys: int, prefix: str = "") -> int:
    """Emit ``q · k / √e``, ``[E · B · heads, N, M]``."""
    q = project_heads(work, p, prefix + "q.", queries, heads)
    k = project_heads(work, p, prefix + "k.", keys, heads)
    return work.gemm(work.affine(q, work.shape(q)[2] ** -0.5), k, trans_b=True)


def mask_logits(work: GraphBuilder, logits: int, visible: Array | None) -> int:
    """Emit logits with -inf for masked keys."""
    return logits if visible is None else work.binary("mask", logits, mask_constant(work, visible))


def mask_constant(work: GraphBuilder, visible: Array) -> int:
    """Emit a constant ``[1, N, M]`` of zeros and ones."""
    return work.constant(visible.astype(np.float64)[None], "seen")


def softmax(work: GraphBuilder, logits: int) -> int:
    """Emit the softmax over the last of three axes."""
    groups, count, wide = work.shape(logits)
    return work.reshape(work.softmax(work.reshape(logits, (groups * count, wide))), (groups, count, wide))


def read_heads(
    work: GraphBuilder, p: Mapping[str, int], heads: int, weights: int, values: int, prefix: str = ""
) -> int:
    """Emit ``W_o (weights · v) + b_o``, ``[E, B, N, d]``."""
    v = project_heads(work, p, prefix + "v.", values, heads)
    edges = work.shape(p[prefix + "o.weight"])[0]
    return affine(work, p, prefix + "o.", join_heads(work, work.gemm(weights, v), edges, heads))


def cross_attention(
    work: GraphBuilder,
    p: Mapping[str, int],
    heads: int,
    queries: int,
    keys: int,
    values: int,
    visible: Array | None = None,
    prefix: str = "",
) -> int:
    """Emit softmax attention, ``[E, B, N, d]``."""
    logits = mask_logits(work, scores(work, p, heads, queries, keys, prefix), visible)
    return read_heads(work, p, heads, softmax(work, logits), values, prefix)


def by_edge(work: GraphBuilder, x: int) -> int:
    """Reshape a parameter ``[E, n]`` to broadcast against ``[E, B, N, n]``."""
    edges, n = work.shape(x)
    return work.reshape(x, (edges, 1, 1, n))


def direction(work: GraphBuilder, x: int) -> int:
    """Emit vectors of the last of three axes, normalised to length 1 (divided by 1e-12 if shorter than that)."""
    square = work.reduce(work.unary(x, "square"), "sum", (2,))
    return work.binary("mul", x, work.unary(work.binary("max", square, work.scalar(SHORTEST)), "rsqrt"))


_RULES = frozenset({"cross", "gated", "local", "random_fixed"})


def is_direct(rule: Attention, pairs: Pairs, width: int) -> bool:
    """Return whether `attend_directly` supports a rule with these pairs."""
    return rule.name in _RULES and is_small(pairs.queries, pairs.keys, width)


def transpose_params(work: GraphBuilder, p: Mapping[str, int]) -> dict[str, int]:
    """Emit parameters ``[E, …]`` in the layout of `attend_directly`: weights ``[E, in, out]``."""
    maps = {f"{side}.weight": f"{side}.turned" for side in SIDES}
    return {maps.get(name, name): work.permute(of, (0, 2, 1)) if name in maps else of for name, of in p.items()}


def reads_transposed(p: Mapping[str, int]) -> bool:
    """Return whether parameters are in the layout of `transpose_params`."""
    return "q.turned" in p


def attend_directly(
    work: GraphBuilder,
    rule: Attention,
    p: Mapping[str, int],
    rows: tuple[int, int, int],
    pairs: Pairs,
    known: Sequence[int] = (),
) -> int:
    """Emit the results of `attend`, ``[E, P, N, d]``, directly from a table of rows.

    Parameters
    ----------
    p : parameters in the layout of `transpose_params`
    rows : a table ``[R, d]``, and the row indices of queries, ``[E, P, N]``, and of keys, ``[E, P, M]``
    known : projected keys and values ``[K, d]``, which key indices then refer to
    """
    assert isinstance(rule, ByHeads)  # by its name
    visible, written = rule.visible(pairs), rule.written_queries(pairs)
    shown = None if visible is None else work.constant(np.ascontiguousarray(visible.T, np.float64), "seen")
    sides = [side for side in SIDES if f"{side}.turned" in p]
    weights, biases = ([p[f"{side}.{part}"] for side in sides] for part in ("turned", "bias"))
    y = cross_attend(work, rule.heads, rows, weights, biases, shown, known)
    if rule.name == "gated":
        y = work.binary("mul", y, by_edge(work, work.unary(p["gate"], "sigmoid")))
    if not written.all():
        y = work.binary("mul_nonzero", y, work.constant(written.astype(np.float64).reshape(1, 1, -1, 1), "written"))
    return y
