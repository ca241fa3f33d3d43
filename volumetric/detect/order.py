"""The order of layers in a chain: what names say of it, what widths leave of it, and whether one order is left."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from volumetric.base.hints import suggestion
from volumetric.detect.assumptions import AssumedError
from volumetric.detect.findings import Finding
from volumetric.layers import BatchNorm2d, Dense, Embedding, LayerNorm, LayerSpec, PositionEmbedding, RMSNorm
from volumetric.layers.conv import Conv

MAX_LOOKED_AT: Final = 20_000
"""Beginnings of orders that are looked at before their number counts as unknown."""
MAX_SEARCHED: Final = 64
"""Layers of chains whose order widths may tell."""
_PLACE: Final = re.compile(r"(|.*[./])(\d{1,9})")
"""Path of a module that its number names, and that of the module that it is in."""
_NUMBER: Final = re.compile(r"\d+")
_STACKS: Final = frozenset({"layers", "layer", "blocks", "block", "h"})
_ROLES: Final[tuple[frozenset[str], ...]] = (
    frozenset({"in", "input", "inputs", "inp", "embed", "embedding", "embeddings", "emb", "stem", "first"}),
    frozenset({"encoder", "encode", "enc", "backbone", "features", "feature", "trunk", "base"}),
    frozenset(),  # whatever has another name
    frozenset({"decoder", "decode", "dec"}),
    frozenset({"classifier", "head", "out", "output", "outputs", "final", "last", "logits", "predict", "predictor"}),
)
"""Words that say where a module stands, in order."""
_OTHER: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Layers in an order.

    Attributes
    ----------
    layers : in that order
    reason : what tells it
    sure : whether names and widths admit no other
    """

    layers: tuple[Finding, ...]
    reason: str
    sure: bool


def numbered(leaves: Sequence[Finding]) -> bool:
    """Whether all are numbered modules of one module, as in torch's Sequential."""
    places = [_PLACE.fullmatch(finding.path) for finding in leaves]
    return len({None if place is None else place[1] for place in places} | {None}) == 2 and None not in places


def place_of(finding: Finding) -> tuple[str, int] | None:
    """The module that a numbered module is in, and its number."""
    place = _PLACE.fullmatch(finding.path)
    return None if place is None else (place[1], int(place[2]))


def order_of(leaves: Sequence[Finding], stated_order: Any = None) -> Order:
    """Return layers in the order in which a chain runs them.

    Numbers of a Sequential give it. Else names do as far as they go: numbers, ``encoder`` before ``decoder``, ``out``
    last; then kinds: embeddings before convolutions, these before recurrent layers, linear ones behind. Of the orders
    that are left, one in which each layer reads as many features as the one before it makes is taken.

    Parameters
    ----------
    leaves : in natural order of their names
    stated_order : paths in order; layers that it does not name are left out

    Raises
    ------
    AssumedError
        `stated_order` names something else than layers, or one of them twice.
    """
    if stated_order is not None:
        return _as_said(leaves, stated_order)
    if numbered(leaves):
        return Order(layers=tuple(leaves), reason="numbers of a Sequential give the order", sure=True)
    before = _before(leaves)
    usual = _usual(leaves, before)
    if all(before[a][b] for a, b in pairwise(usual)):
        return Order(layers=_picked(leaves, usual), reason="names and kinds give the order", sure=True)
    orders = _fitting(leaves, before) if len(leaves) <= MAX_SEARCHED else None
    if orders is not None and len(orders) == 1:
        reason = "names, kinds and widths admit one order"
        return Order(layers=_picked(leaves, orders[0]), reason=reason, sure=True)
    chosen = orders[0] if orders else usual
    several = "several orders" if orders else "no order of all of them"
    return Order(layers=_picked(leaves, chosen), reason=f"names, kinds and widths admit {several}", sure=False)


def _picked(leaves: Sequence[Finding], places: Iterable[int]) -> tuple[Finding, ...]:
    return tuple(leaves[i] for i in places)


def _as_said(leaves: Sequence[Finding], stated_order: Any) -> Order:
    names = stated_order.split(",") if isinstance(stated_order, str) else stated_order
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise AssumedError(
            f"guess: order must be paths of layers, got {str(stated_order)[:60]!r}", hint='as in ["fc_in", "fc_out"]'
        )
    paths = {finding.path: finding for finding in leaves}
    names = [name.strip() for name in names]
    for name in names:
        if name not in paths:
            raise AssumedError(f"guess: order: there is no layer {name!r}", hint=suggestion(name, paths))
        if names.count(name) > 1:
            raise AssumedError(f"guess: order: {name!r} is there twice", hint="each layer runs once")
    return Order(layers=tuple(paths[name] for name in names), reason="the order is the one that was said", sure=True)


def _before(leaves: Sequence[Finding]) -> list[list[bool]]:
    """Whether names or kinds put layer a before layer b."""
    return [[_comes_first(a, b) for b in leaves] for a in leaves]


def _comes_first(a: Finding, b: Finding) -> bool:
    ours, theirs = (re.split(r"[./]", each.path) for each in (a, b))
    at = next((i for i, (x, y) in enumerate(zip(ours, theirs, strict=False)) if x != y), None)
    if at is None:
        return len(ours) < len(theirs) and _rank(a.layer) <= _rank(b.layer)
    one, other = ours[at], theirs[at]
    first, second = _numbers(one), _numbers(other)
    if _NUMBER.sub("#", one) == _NUMBER.sub("#", other):
        return first < second
    if _role(one) != _role(other):
        return _role(one) < _role(other)
    if one in _STACKS and _is_norm(b) and at == len(theirs) - 1:  # the norm behind a stack of blocks
        return True
    if other in _STACKS and _is_norm(a) and at == len(ours) - 1:
        return False
    norms = _is_norm(a) + _is_norm(b)
    if not norms:
        return _rank(a.layer) < _rank(b.layer)
    if first and second and first != second:
        return first < second
    return bool(first) and first == second and _is_norm(b) and norms == 1  # bn1 behind conv1


def _numbers(part: str) -> list[int]:
    return [int(digits[-18:]) for digits in _NUMBER.findall(part)]


def _role(part: str) -> int:
    """Place of a module by the first or last word of its name that says one."""
    words = [word for word in re.split(r"[_\d]+", part.lower()) if word]
    roles = [i for i, role in enumerate(_ROLES) for word in words if word in role]
    return roles[0] if len(set(roles)) == 1 else _OTHER


def _is_norm(finding: Finding) -> bool:
    return isinstance(finding.layer, (LayerNorm, RMSNorm, BatchNorm2d))


def _rank(layer: LayerSpec | None) -> int:
    if isinstance(layer, Embedding):
        return 0
    if isinstance(layer, PositionEmbedding):
        return 1
    return 2 if isinstance(layer, Conv) else 4 if isinstance(layer, Dense) else 3


def _usual(leaves: Sequence[Finding], before: list[list[bool]]) -> list[int]:
    """An order that names and kinds admit: of those that may come next, the first by its name.

    A norm of which they say nothing stands behind the layer that its name follows.
    """
    left, placed = list(range(len(leaves))), []
    predecessors = [sum(row[i] for row in before) for i in left]  # how many layers that are left stand before each
    while left:
        free = [i for i in left if predecessors[i] == 0] or left
        behind = placed[-1] + 1 if placed else -1
        follows = [i for i in free if i == behind and _is_norm(leaves[i])]
        plain = [i for i in free if not _is_norm(leaves[i])]
        chosen = (follows or plain or free)[0]
        left.remove(chosen)
        placed.append(chosen)
        predecessors = [count - comes for count, comes in zip(predecessors, before[chosen], strict=True)]
    return placed


def _fitting(leaves: Sequence[Finding], before: list[list[bool]]) -> list[list[int]] | None:
    """The first two orders in which each layer reads what the one before it makes; None if too many begin so."""
    ends = [widths(finding.layer) for finding in leaves]
    orders: list[list[int]] = []
    looked = 0
    open_ends: list[list[int]] = [[]]
    while open_ends and len(orders) < 2:
        chain = open_ends.pop()
        looked += 1
        if looked > MAX_LOOKED_AT:
            return None
        if len(chain) == len(leaves):
            orders.append(chain)
            continue
        left = [i for i in range(len(leaves)) if i not in chain]
        width = _made(chain, ends)
        for i in reversed(left):
            reads = ends[i][0]
            fits = not chain or reads is None or width is None or reads == width
            if fits and (reads != 0 or not chain) and not any(before[j][i] for j in left):
                open_ends.append([*chain, i])
    return orders


def _made(chain: Sequence[int], ends: Sequence[tuple[int | None, int | None]]) -> int | None:
    """Features that the end of a chain makes, None where that is not known."""
    return ends[chain[-1]][1] if chain else None


def widths(layer: LayerSpec | None) -> tuple[int | None, int | None]:
    """Features that a layer reads and makes; 0: token ids; None where shapes leave it open.

    Filters of a convolution read a part of the channels, and a linear layer behind one any multiple of them.
    """
    match layer:
        case Embedding():
            return 0, layer.embedding_dim
        case Conv():
            return None, None
        case Dense():
            return layer.in_features, layer.out_features
        case LayerNorm() | RMSNorm() | BatchNorm2d():
            return layer.num_features, layer.num_features
        case PositionEmbedding():
            return layer.embedding_dim, layer.embedding_dim
        case _:
            return _of_shapes(layer)


def _of_shapes(layer: LayerSpec | None) -> tuple[int | None, int | None]:
    """Of recurrent layers and blocks, one in the other or side by side."""
    children = [] if layer is None else list(layer.children().values())
    if not children:
        return getattr(layer, "input_size", getattr(layer, "embed_dim", None)), getattr(
            layer, "hidden_size", getattr(layer, "embed_dim", None)
        )
    first = widths(children[0])[0]
    if getattr(layer, "combine", None) == "concat":
        child_widths = [widths(child)[1] for child in children]
        return first, None if None in child_widths else sum(n for n in child_widths if n is not None)
    return first, widths(children[-1])[1]
