"""How large programs may be: what would fill the memory is refused before it is made."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from volumetric.errors import SpecError
from volumetric.layers.base import ParamSpec
from volumetric.layers.program.declared import Program
from volumetric.layers.program.edge import Edge

MOST_PAIRS = 2**28
"""Pairs of positions that an edge has scores or a mask of, at most."""
MOST_MASKED = 2**31
"""Pairs that all masks of a program are about, at most: a byte each."""
MOST_PLACED = 2**26
"""Positions of all regions, at most: what several hold counts for each."""
MOST_KEPT = 2**33
"""Numbers of earlier steps that an edge of a stream reads, at most."""
MOST_WEIGHTS = 2**32
"""Numbers of all parameters, at most."""
PAIRWISE = ("cross", "cosine", "sigmoid", "gated", "sparse", "local", "random_fixed", "mixture", "mamba")
"""Rules that have a score for each pair of positions."""


def check_sizes(program: Program) -> None:
    """Refuse what would fill the memory before it is made."""
    sizes = {name: of.size for name, of in program.canvas.regions.items()}
    placed, axes = sum(sizes.values()), len(program.canvas.sides)
    if placed > MOST_PLACED:
        raise SpecError(
            f"regions hold {placed:,} positions together, which would take {8 * (axes + 1) * placed / 2**30:,.1f} GiB; "
            f"at most {MOST_PLACED:,} are possible",
            hint="smaller regions, or fewer that overlap",
        )
    masked = sum(sizes[edge.writes] * sizes[edge.reads] for edge in program.edges if edge.mask is not None)
    if masked > MOST_MASKED:
        raise SpecError(
            f"masks of all edges would take {masked / 2**30:,.1f} GiB; {MOST_MASKED / 2**30:,.0f} GiB are possible",
            hint="smaller regions, or fewer masks",
        )


def check_weights(params: Sequence[ParamSpec]) -> None:
    """Refuse parameters that would fill the memory."""
    sizes = {one.name: prod(one.shape) for one in params}
    total = sum(sizes.values())
    if total > MOST_WEIGHTS:
        name = max(sizes, key=sizes.__getitem__)
        raise SpecError(
            f"parameters would take {total / 2**28:,.1f} GiB, of which {name!r} {sizes[name] / 2**28:,.1f} GiB; "
            f"{MOST_WEIGHTS / 2**28:,.0f} GiB are possible",
            hint="smaller options of its rule, or a narrower canvas",
        )


def check_edge(program: Program, edge: Edge, rule: str, shape: tuple[int, int]) -> None:
    """Refuse an edge that would fill the memory; `shape` says how many positions it writes, and rows it reads."""
    what, pairs = f"edge {edge.name!r}", shape[0] * shape[1]
    if pairs > MOST_PAIRS and (edge.mask is not None or rule in PAIRWISE):
        each = 1 if edge.mask is not None else 4 * (edge.heads or program.heads)
        of = "a mask" if edge.mask is not None else f"scores of rule {rule!r}"
        raise SpecError(
            f"{what}: {of} for {shape[0]:,} × {shape[1]:,} pairs would take {each * pairs / 2**30:,.1f} GiB; "
            f"at most {MOST_PAIRS:,} pairs are possible",
            hint="smaller regions, or a rule that needs no pairs, such as linear or pooling",
        )
    kept = (edge.lag or 0) * shape[1] * program.canvas.width
    if program.timing == "stream" and kept > MOST_KEPT:
        raise SpecError(
            f"{what}: a lag of {edge.lag:,} keeps {kept / 2**28:,.1f} GiB of each stream; "
            f"{MOST_KEPT / 2**28:,.0f} GiB are possible",
            hint="a shorter lag, or a smaller region",
        )
