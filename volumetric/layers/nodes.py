"""Layers that are made of nodes, such as fabrics: ids, masks, and which entries of tensors belong to which node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.layers.base import LayerSpec


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Entries of one axis, of which nodes have one each, or share one.

    Attributes
    ----------
    axis : which
    width : numbers of an entry along the axis
    nodes : ids, int64 ``[n]``
    places : entry of each of them, int64 ``[n]``
    """

    axis: int
    width: int
    nodes: Array
    places: Array

    def of(self, places: Array) -> Array:
        """Indices along the axis of some entries."""
        return (places[:, None] * self.width + np.arange(self.width)).reshape(-1)

    def only(self, gone: Array) -> Array:
        """Return the entries that belong to none but `gone` nodes, rising."""
        mine = np.isin(self.nodes, gone)
        return np.setdiff1d(self.places[mine], self.places[~mine])

    def mask(self, places: Array, value: Array) -> Array:
        """Where in an array some entries are, bool in a shape that repeats to that of `value`."""
        mask = np.zeros([size if axis == self.axis else 1 for axis, size in enumerate(value.shape)], bool)
        mask.reshape(-1)[self.of(places)] = True
        return mask

    def followed(self, value: Array, before: Entries, fresh: Array) -> Array:
        """Return `fresh` with what `value`, whose entries are `before`, has of the same nodes."""
        _, mine, theirs = np.intersect1d(self.nodes, before.nodes, assume_unique=True, return_indices=True)
        new, first = np.unique(self.places[mine], return_index=True)  # nodes that share an entry shared one before
        old = before.places[theirs[first]]
        values = np.moveaxis(fresh.copy(), self.axis, 0)
        values[self.of(new)] = np.moveaxis(value, self.axis, 0)[before.of(old)]
        return np.ascontiguousarray(np.moveaxis(values, 0, self.axis))


class NodeLayer(LayerSpec):
    """Base of layers that are made of nodes.

    Streams mask nodes of a `dynamic` one, through its buffer ``"living"``, float32 ``[nodes]``, and carry what nodes
    keep over to a layer that has other nodes.
    """

    __slots__ = ()
    dynamic: bool

    @property
    def node_ids(self) -> Array:
        """Ids of the nodes, int64 ``[nodes]``, in the order of ``"living"``."""
        raise NotImplementedError

    def state_entries(self) -> dict[str, Entries]:
        """Return which entries of each state belong to which nodes."""
        raise NotImplementedError

    def whole(self) -> NodeLayer:
        """Return the same layer with all of its nodes, none of which can be masked."""
        raise NotImplementedError


N = TypeVar("N", bound=NodeLayer)


def node_layers_in(layers: Mapping[Any, LayerSpec], kind: type[N] = NodeLayer) -> dict[str, N]:
    """Return the layers of nodes of a network, or among other named layers, by their paths; also inside of containers.

    Parameters
    ----------
    kind : those of this class
    """
    return dict(_walk(((str(where), spec) for where, spec in layers.items()), kind))


def _walk(layers: Iterator[tuple[str, LayerSpec]], kind: type[N]) -> Iterator[tuple[str, N]]:
    for path, spec in layers:
        if isinstance(spec, kind):
            yield path, spec
        children = ((f"{path}/{name}", child) for name, child in spec.children().items())
        yield from _walk(children, kind)


def node_layer_at(layers: Mapping[Any, LayerSpec], at: str | None, kind: type[N] = NodeLayer) -> tuple[str, N]:
    """Return the path and the spec of the layer of nodes at a path, or of the only one that there is.

    Raises
    ------
    SpecError : there is none, or no path tells which
    """
    fabrics = node_layers_in(layers, kind)
    known = ", ".join(map(repr, fabrics))
    if at is None:
        if len(fabrics) != 1:
            raise SpecError(
                f"the network has {len(fabrics) or 'no'} fabrics", hint=f"at= is one of {known}" if fabrics else None
            )
        [at] = fabrics
    if at not in fabrics:
        raise SpecError(f"there is no fabric at {at!r}", hint=f"fabrics are at {known}" if fabrics else None)
    return at, fabrics[at]


def places_of(spec: NodeLayer, nodes: object) -> Array:
    """Return where nodes, told by their ids, stand in the order of `NodeLayer.node_ids`.

    Raises
    ------
    SpecError : there is no node of an id
    """
    order = spec.node_ids
    ids = np.atleast_1d(np.asarray(list(nodes) if not isinstance(nodes, int | np.integer) else nodes))  # pyright: ignore[reportArgumentType]  (checked below)
    if ids.size == 0:
        return np.zeros(0, np.int64)
    wrong = ids[~np.isin(ids, order)] if ids.dtype.kind in "iu" else ids
    if wrong.size:
        raise SpecError(f"the fabric has no node {wrong[0]}", hint=f"ids are of {order.min()} … {order.max()}")
    by_id = np.argsort(order)
    return np.unique(by_id[np.searchsorted(order[by_id], ids)])
