"""The order of layers in a chain: orders that names and widths allow, and whether there is only one."""

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
"""Maximum partial orders that are tried; beyond it the number of orders counts as unknown."""
MAX_SEARCHED: Final = 64
"""Maximum layers of a chain whose order widths may determine."""
_PLACE: Final = re.compile(r"(|.*[./])(\d{1,9})")
"""Matches the path of a numbered module; its groups are the path of the parent and the number."""
_NUMBER: Final = re.compile(r"\d+")
_STACKS: Final = frozenset({"layers", "layer", "blocks", "block", "h"})
_ROLES: Final[tuple[frozenset[str], ...]] = (
    frozenset({"in", "input", "inputs", "inp", "embed", "embedding", "embeddings", "emb", "stem", "first"}),
    frozenset({"encoder", "encode", "enc", "backbone", "features", "feature", "trunk", "base"}),
    frozenset(),  # any other name
    frozenset({"decoder", "decode", "dec"}),
    frozenset({"classifier", "head", "out", "output", "outputs", "final", "last", "logits", "predict", "predictor"}),
)
"""Words that show the place of a module, in order."""
_OTHER: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOrder:
    """An order of layers.

    Attributes
    ----------
    layers : the layers in that order
    reason : the evidence for it
    sure : whether names and widths allow no other order
    """

    layers: tuple[Finding, ...]
    reason: str
    sure: bool


def are_numbered(leaves: Sequence[Finding]) -> bool:
    """Whether all are numbered children of one module, as in torch's Sequential."""
    places = [_PLACE.fullmatch(finding.path) for finding in leaves]
    return len({None if place is None else place[1] for place in places} | {None}) == 2 and None not in places


def place_of(finding: Finding) -> tuple[str, int] | None:
    """The parent of a numbered module, and its number."""
    place = _PLACE.fullmatch(finding.path)
    return None if place is None else (place[1], int(place[2]))


def order_of(leaves: Sequence[Finding], stated_order: Any = None) -> LayerOrder:
    """Return layers in the order in which a chain runs them.

    The numbers of a Sequential determine it. Otherwise names do: numbers, ``encoder`` before ``decoder``, ``out`` last;
    then kinds: embeddings, convolutions, recurrent layers, linear layers. Of the remaining orders, one is chosen in
    which each layer reads as many features as the layer before it returns.

    Parameters
    ----------
    leaves : in natural order of their names
    stated_order : paths in order; layers that it does not name are left out

    Raises
    ------
    AssumedError
        `stated_order` names something other than layers, or a layer twice.
    """
    if stated_order is not None:
        return _stated_order(leaves, stated_order)
    if are_numbered(leaves):
        return LayerOrder(layers=tuple(leaves), reason="the numbers of a Sequential determine the order", sure=True)
    before = _precedence(leaves)
    usual = _usual_order(leaves, before)
    if all(before[a][b] for a, b in pairwise(usual)):
        return LayerOrder(layers=_pick_layers(leaves, usual), reason="names and kinds determine the order", sure=True)
    orders = _orders_that_fit(leaves, before) if len(leaves) <= MAX_SEARCHED else None
    if orders is not None and len(orders) == 1:
        reason = "names, kinds and widths allow only one order"
        return LayerOrder(layers=_pick_layers(leaves, orders[0]), reason=reason, sure=True)
    chosen = orders[0] if orders else usual
    several = "several orders" if orders else "no order of all layers"
    return LayerOrder(
        layers=_pick_layers(leaves, chosen), reason=f"names, kinds and widths allow {several}", sure=False
    )


def _pick_layers(leaves: Sequence[Finding], places: Iterable[int]) -> tuple[Finding, ...]:
    return tuple(leaves[i] for i in places)


def _stated_order(leaves: Sequence[Finding], stated_order: Any) -> LayerOrder:
    names = stated_order.split(",") if isinstance(stated_order, str) else stated_order
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise AssumedError(
            f"guess: order must be a list of paths of layers, got {str(stated_order)[:60]!r}",
            hint='for example ["fc_in", "fc_out"]',
        )
    paths = {finding.path: finding for finding in leaves}
    names = [name.strip() for name in names]
    for name in names:
        if name not in paths:
            raise AssumedError(f"guess: order: there is no layer {name!r}", hint=suggestion(name, paths))
        if names.count(name) > 1:
            raise AssumedError(f"guess: order has the duplicate {name!r}", hint="name each layer once")
    return LayerOrder(layers=tuple(paths[name] for name in names), reason="the order was given", sure=True)


def _precedence(leaves: Sequence[Finding]) -> list[list[bool]]:
    """Whether names or kinds require layer a before layer b."""
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
    if one in _STACKS and _is_norm(b) and at == len(theirs) - 1:  # the norm after a stack of blocks
        return True
    if other in _STACKS and _is_norm(a) and at == len(ours) - 1:
        return False
    norms = _is_norm(a) + _is_norm(b)
    if not norms:
        return _rank(a.layer) < _rank(b.layer)
    if first and second and first != second:
        return first < second
    return bool(first) and first == second and _is_norm(b) and norms == 1  # bn1 after conv1


def _numbers(part: str) -> list[int]:
    return [int(digits[-18:]) for digits in _NUMBER.findall(part)]


def _role(part: str) -> int:
    """Rank of a module by the first or last word of its name that has one."""
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


def _usual_order(leaves: Sequence[Finding], before: list[list[bool]]) -> list[int]:
    """An order that names and kinds allow: of the layers that may come next, the first by name.

    A norm without such evidence comes after the layer that precedes it by name.
    """
    left, placed = list(range(len(leaves))), []
    predecessors = [
        sum(row[i] for row in before) for i in left
    ]  # number of remaining layers that must come before each
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


def _orders_that_fit(leaves: Sequence[Finding], before: list[list[bool]]) -> list[list[int]] | None:
    """The first two orders in which each layer can read the output before it; None after too many trials."""
    ends = [input_and_output_width(finding.layer) for finding in leaves]
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
        width = _output_width(chain, ends)
        for i in reversed(left):
            reads = ends[i][0]
            fits = not chain or reads is None or width is None or reads == width
            if fits and (reads != 0 or not chain) and not any(before[j][i] for j in left):
                open_ends.append([*chain, i])
    return orders


def _output_width(chain: Sequence[int], ends: Sequence[tuple[int | None, int | None]]) -> int | None:
    """Number of features at the end of a chain, None if unknown."""
    return ends[chain[-1]][1] if chain else None


def input_and_output_width(layer: LayerSpec | None) -> tuple[int | None, int | None]:
    """Number of features that a layer reads and returns; 0: token ids; None: shapes do not determine it.

    Filters of a convolution read a part of the channels, and a linear layer after it reads any multiple of them.
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
            return _recurrent_widths(layer)


def _recurrent_widths(layer: LayerSpec | None) -> tuple[int | None, int | None]:
    """Widths of recurrent layers and blocks, nested or in parallel."""
    children = [] if layer is None else list(layer.children().values())
    if not children:
        return getattr(layer, "input_size", getattr(layer, "embed_dim", None)), getattr(
            layer, "hidden_size", getattr(layer, "embed_dim", None)
        )
    first = input_and_output_width(children[0])[0]
    if getattr(layer, "combine", None) == "concat":
        child_widths = [input_and_output_width(child)[1] for child in children]
        return first, None if None in child_widths else sum(n for n in child_widths if n is not None)
    return first, input_and_output_width(children[-1])[1]
