"""Choose the scheme of each tensor for a budget of bits per weight, with the least loss.

For each tensor, or group of tensors with one scheme, only schemes on the lower convex hull of (bytes, damage) matter:
each step to the next finer scheme reduces damage for some bytes, with falling ratio. Steps of all tensors are taken in
order of this ratio until the budget is used (Shoham & Gersho 1988, "Efficient bit allocation for an arbitrary set of
quantizers"). Small damages are additive.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from volumetric.base.errors import UnsupportedError
from volumetric.dtypes import BLOCK_FORMATS, OWN_FORMATS, Scheme
from volumetric.loaders.calibration.damage import TensorDamage

_ANY_ROW = ("int4:g32", "uint4:g32", "int8:g32")
_OURS = ("uint2:g64", *OWN_FORMATS)
"""Further schemes for rows of a multiple of 32, if no GGUF file is written."""


def candidates_for(columns: int, *, whole: bool) -> tuple[Scheme, ...]:
    """Return the schemes that a matrix may take.

    Parameters
    ----------
    columns : number of columns
    whole : whether rows must fill whole blocks, as in GGUF files
    """
    if columns % 32:
        names = () if whole else _ANY_ROW
    else:
        size = 32 if columns % 256 else 256
        blocks = tuple(name for name, form in BLOCK_FORMATS.items() if form.calibrated and form.size == size)
        names = (() if whole else _OURS) + blocks + (_ANY_ROW if size == 32 else ("int8:g32",))
    return tuple(map(Scheme.parse, names))


@dataclass(frozen=True, slots=True)
class SchemeChoice:
    """The scheme that was chosen for a tensor, or a group of tensors.

    Attributes
    ----------
    name : the parameter, or the tensor of the file that contains several
    keys : the parameters
    scheme : their scheme
    elements : number of their elements
    nbytes : their size in this scheme
    nats : estimated KL divergence per token that this costs
    """

    name: str
    keys: tuple[str, ...]
    scheme: Scheme
    elements: int
    nbytes: int
    nats: float


def choose(
    damages: Iterable[TensorDamage],
    bits: float,
    *,
    groups: Mapping[str, Sequence[str]],
    others: tuple[int, int] = (0, 0),
) -> list[SchemeChoice]:
    """Return the scheme of each tensor.

    Parameters
    ----------
    damages : damage of each tensor in each of its schemes
    bits : maximum stored bits per weight of the model, including scales
    groups : name → parameters that share a scheme; all others are separate
    others : elements and bytes of the tensors with fixed schemes

    Raises
    ------
    UnsupportedError
        Even the coarsest schemes exceed the budget.
    """
    items = _items({damage.key: damage for damage in damages}, groups)
    elements, fixed = others
    elements += sum(hull[0].elements for hull in items)
    spent = fixed + sum(hull[0].nbytes for hull in items)
    budget = bits * elements / 8
    check_budget(bits, elements, spent)
    at = [0] * len(items)
    bargains: list[tuple[float, int]] = []

    def offer(i: int) -> None:
        hull, place = items[i], at[i]
        if place + 1 < len(hull):
            coarse, fine = hull[place : place + 2]
            heapq.heappush(bargains, ((fine.nats - coarse.nats) / (fine.nbytes - coarse.nbytes), i))

    for i in range(len(items)):
        offer(i)
    while bargains:
        _, i = heapq.heappop(bargains)
        more = items[i][at[i] + 1].nbytes - items[i][at[i]].nbytes
        if spent + more <= budget:
            spent += more
            at[i] += 1
            offer(i)
    return [hull[place] for hull, place in zip(items, at, strict=True)]


def check_budget(bits: float, elements: int, nbytes: int) -> None:
    """Raise `UnsupportedError` if `elements` in at least `nbytes` bytes need more than `bits` bits each."""
    if 8 * nbytes > bits * elements:
        raise UnsupportedError(
            f"{bits:g} bits per weight are too few: the coarsest types take {8 * nbytes / max(elements, 1):.2f}",
            hint="rows of a multiple of 256 elements allow fewer bits than others",
        )


def _items(damages: Mapping[str, TensorDamage], groups: Mapping[str, Sequence[str]]) -> list[list[SchemeChoice]]:
    """Schemes of each group on the lower convex hull, coarsest first."""
    known = {name: tuple(key for key in keys if key in damages) for name, keys in groups.items()}
    grouped = {key for keys in known.values() for key in keys}
    known |= {key: (key,) for key in damages if key not in grouped}
    return [_hull(name, keys, [damages[key] for key in keys]) for name, keys in known.items() if keys]


def _hull(name: str, keys: tuple[str, ...], damages: list[TensorDamage]) -> list[SchemeChoice]:
    schemes = [scheme for scheme in damages[0].nats if all(scheme in damage.nats for damage in damages)]
    elements = sum(prod(damage.shape) for damage in damages)
    choices = [
        SchemeChoice(
            name,
            keys,
            scheme,
            elements,
            sum(scheme.nbytes(damage.shape) for damage in damages),
            sum(damage.nats[scheme] for damage in damages),
        )
        for scheme in schemes
    ]
    hull: list[SchemeChoice] = []
    for choice in sorted(choices, key=lambda choice: (choice.nbytes, choice.nats)):
        if hull and choice.nats >= hull[-1].nats:
            continue  # neither smaller nor better
        while len(hull) > 1 and _slope(hull[-2], choice) <= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(choice)
    return hull


def _slope(a: SchemeChoice, b: SchemeChoice) -> float:
    return (b.nats - a.nats) / (b.nbytes - a.nbytes)
