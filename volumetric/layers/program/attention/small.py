"""Edges between small regions, each from the rows that it reads to what it brings as a part of one operation.

Only where nothing learns: gradients go through the nodes of `by_heads`, which give the same but for the last bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.crossing import SIDES, cross_attend, is_small
from volumetric.layers.program.attention.base import Attention, Pairs
from volumetric.layers.program.attention.heads import ByHeads, by_edge

_RULES = frozenset({"cross", "gated", "local", "random_fixed"})


def is_direct(rule: Attention, pairs: Pairs, width: int) -> bool:
    """Whether `attend_directly` computes what a rule makes of pairs."""
    return rule.name in _RULES and is_small(pairs.queries, pairs.keys, width)


def turned(work: GraphBuilder, p: Mapping[str, int]) -> dict[str, int]:
    """Emit parameters ``[E, …]`` as `attend_directly` reads them: weights ``[E, in, out]``."""
    maps = {f"{side}.weight": f"{side}.turned" for side in SIDES}
    return {maps.get(name, name): work.permute(of, (0, 2, 1)) if name in maps else of for name, of in p.items()}


def reads_turned(p: Mapping[str, int]) -> bool:
    """Whether parameters are as `turned` has them."""
    return "q.turned" in p


def attend_directly(
    work: GraphBuilder,
    rule: Attention,
    p: Mapping[str, int],
    rows: tuple[int, int, int],
    pairs: Pairs,
    known: Sequence[int] = (),
) -> int:
    """Emit what `attend` does, ``[E, P, N, d]``.

    Parameters
    ----------
    p : as `turned` has them
    rows : a table ``[R, d]``, and the numbers of those of its rows that ask, ``[E, P, N]``, and tell, ``[E, P, M]``
    known : keys and values ``[K, d]``, of which those tell, if they are mapped already
    """
    assert isinstance(rule, ByHeads)  # by its name
    seen, written = rule.seen(pairs), rule.written(pairs)
    shown = None if seen is None else work.constant(np.ascontiguousarray(seen.T, np.float64), "seen")
    sides = [side for side in SIDES if f"{side}.turned" in p]
    weights, biases = ([p[f"{side}.{part}"] for side in sides] for part in ("turned", "bias"))
    y = cross_attend(work, rule.heads, rows, weights, biases, shown, known)
    if rule.name == "gated":
        y = work.binary("mul", y, by_edge(work, work.unary(p["gate"], "sigmoid")))
    if not written.all():
        y = work.binary("mul_nonzero", y, work.constant(written.astype(np.float64).reshape(1, 1, -1, 1), "written"))
    return y
