"""Layers that consist of nodes, such as fabrics: ids, masks, and which entries of tensors belong to which node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.layers.layer_spec import LayerSpec


@dataclass(frozen=True, slots=True, eq=False)
class NodeEntries:
    """Entries along one axis that belong to nodes; nodes may share an entry.

    Attributes
    ----------
    axis : the axis
    width : elements of an entry along the axis
    nodes : ids of the nodes, int64 ``[n]``
    places : index of each node's entry, int64 ``[n]``
    """

    axis: int
    width: int
    nodes: Array
    places: Array

    def indices_of(self, places: Array) -> Array:
        """Return the indices of entries along the axis."""
        return (places[:, None] * self.width + np.arange(self.width)).reshape(-1)

    def entries_of(self, gone: Array) -> Array:
        """Return the entries that belong only to `gone` nodes, in ascending order."""
        mine = np.isin(self.nodes, gone)
        return np.setdiff1d(self.places[mine], self.places[~mine])

    def mask(self, places: Array, value: Array) -> Array:
        """Return a mask of entries in an array, bool in a shape that broadcasts to that of `value`."""
        mask = np.zeros([size if axis == self.axis else 1 for axis, size in enumerate(value.shape)], bool)
        mask.reshape(-1)[self.indices_of(places)] = True
        return mask

    def carry_over(self, value: Array, before: NodeEntries, fresh: Array) -> Array:
        """Return `fresh` with the entries of nodes that `value`, with the entries `before`, has too."""
        _, mine, theirs = np.intersect1d(self.nodes, before.nodes, assume_unique=True, return_indices=True)
        new, first = np.unique(self.places[mine], return_index=True)  # nodes that share an entry shared it before
        old = before.places[theirs[first]]
        values = np.moveaxis(fresh.copy(), self.axis, 0)
        values[self.indices_of(new)] = np.moveaxis(value, self.axis, 0)[before.indices_of(old)]
        return np.ascontiguousarray(np.moveaxis(values, 0, self.axis))


class NodeLayer(LayerSpec):
    """Base of layers that consist of nodes.

    Streams mask nodes of a `dynamic` layer with its buffer ``"living"``, float32 ``[nodes]``, and carry the states of
    nodes over to a layer with other nodes.
    """

    __slots__ = ()
    dynamic: bool

    @property
    def node_ids(self) -> Array:
        """Ids of the nodes, int64 ``[nodes]``, in the order of ``"living"``."""
        raise NotImplementedError

    def state_entries(self) -> dict[str, NodeEntries]:
        """Return which entries of each state belong to which nodes."""
        raise NotImplementedError

    def without_masks(self) -> NodeLayer:
        """Return the same layer with all of its nodes and without masking."""
        raise NotImplementedError


N = TypeVar("N", bound=NodeLayer)


def node_layers_in(layers: Mapping[Any, LayerSpec], kind: type[N] = NodeLayer) -> dict[str, N]:
    """Return the layers of nodes of a network, or among other named layers, by path; searches containers, too.

    Parameters
    ----------
    kind : class of the returned layers
    """
    return dict(_walk(((str(where), spec) for where, spec in layers.items()), kind))


def _walk(layers: Iterator[tuple[str, LayerSpec]], kind: type[N]) -> Iterator[tuple[str, N]]:
    for path, spec in layers:
        if isinstance(spec, kind):
            yield path, spec
        children = ((f"{path}/{name}", child) for name, child in spec.children().items())
        yield from _walk(children, kind)


def node_layer_at(layers: Mapping[Any, LayerSpec], at: str | None, kind: type[N] = NodeLayer) -> tuple[str, N]:
    """Return the path and the spec of the layer of nodes at a path, or of the only such layer if `at` is None.

    Raises
    ------
    SpecError : there is no such layer, or there are several and `at` is None
    """
    fabrics = node_layers_in(layers, kind)
    known = ", ".join(map(repr, fabrics))
    if at is None:
        if len(fabrics) != 1:
            raise SpecError(
                f"the network has {len(fabrics) or 'no'} fabrics",
                hint=f"set at= to one of {known}" if fabrics else None,
            )
        [at] = fabrics
    if at not in fabrics:
        raise SpecError(f"there is no fabric at {at!r}", hint=f"fabrics are at {known}" if fabrics else None)
    return at, fabrics[at]


def places_of(spec: NodeLayer, nodes: object) -> Array:
    """Return the indices of nodes, passed as ids, in `NodeLayer.node_ids`.

    Raises
    ------
    SpecError : an id has no node
    """
    order = spec.node_ids
    ids = np.atleast_1d(np.asarray(list(nodes) if not isinstance(nodes, int | np.integer) else nodes))  # pyright: ignore[reportArgumentType]  (checked below)
    if ids.size == 0:
        return np.zeros(0, np.int64)
    wrong = ids[~np.isin(ids, order)] if ids.dtype.kind in "iu" else ids
    if wrong.size:
        raise SpecError(f"the fabric has no node {wrong[0]}", hint=f"ids are in {order.min()} … {order.max()}")
    by_id = np.argsort(order)
    return np.unique(by_id[np.searchsorted(order[by_id], ids)])
