"""The living nodes of fabrics in a stream: set between calls, saved with the stream, separate in every fork."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.moved_modules import renamed_members
from volumetric.layers.node_layer import NodeLayer, node_layer_at, node_layers_in, places_of
from volumetric.network import Network, Params
from volumetric.network.weight_store import WeightStore


class NodeMasks:
    """The mask buffers of all fabrics whose nodes can be masked. Arrays are replaced, never written to.

    Parameters
    ----------
    params : has the initial masks
    """

    def __init__(self, network: Network, params: Params) -> None:
        self._network = network
        self._fabrics: dict[str, NodeLayer] = {}
        if any(name.endswith("living") for name in params):
            layers = node_layers_in(network.layers)
            self._fabrics = {network.resolve(f"{at}/living"): spec for at, spec in layers.items() if spec.dynamic}
        self.values: Mapping[str, Array] = {key: params[key].values() for key in self._fabrics}

    def fork(self) -> NodeMasks:
        """Return an independent copy."""
        living = object.__new__(NodeMasks)
        living._network, living._fabrics, living.values = self._network, self._fabrics, self.values
        return living

    def ids(self, at: str | None) -> Array:
        """Return the ids of the living nodes of a fabric, ascending."""
        key, spec = self._key(at)
        return np.sort(spec.node_ids[self.values[key] != 0])

    def change(self, nodes: Iterable[int] | int, at: str | None, to: Literal[0, 1]) -> None:
        """Mask or unmask nodes."""
        key, spec = self._key(at)
        value = self.values[key].copy()
        value[places_of(spec, nodes)] = to
        self.values = {**self.values, key: value}

    def _key(self, at: str | None) -> tuple[str, NodeLayer]:
        path, spec = node_layer_at(self._network.layers, at)
        if not spec.dynamic:
            raise SpecError(
                f"the nodes of the fabric at {path!r} cannot be masked", hint="declare it with dynamic=True"
            )
        return self._network.resolve(f"{path}/living"), spec

    def masked_ids(self) -> dict[str, list[int]]:
        """Return the ids of masked nodes, ascending, for `restored`."""
        return {key: np.sort(spec.node_ids[self.values[key] == 0]).tolist() for key, spec in self._fabrics.items()}

    def masks_after(self, other: NodeMasks) -> dict[str, list[int]]:
        """Return the masks for `restored`, taking those of `other` for nodes that both networks have."""
        masked: dict[str, list[int]] = {}
        before = other.masked_ids()
        for key, ids in self.masked_ids().items():
            if key not in before:
                masked[key] = ids
                continue
            there, known = self._fabrics[key].node_ids, other._fabrics[key].node_ids
            masked[key] = [*np.intersect1d(before[key], there).tolist(), *np.setdiff1d(ids, known).tolist()]
        return masked

    def restore(self, masked: Mapping[str, list[int]]) -> Mapping[str, Array]:
        """Return the buffers for saved ids; fabrics without saved ids keep theirs.

        Raises
        ------
        CheckpointError : a fabric or node does not exist
        """
        values = dict(self.values)
        for key, ids in masked.items():
            order = self._fabrics[key].node_ids if key in self._fabrics else np.zeros(0, np.int64)
            if not np.isin(ids, order).all() or key not in self._fabrics:
                raise CheckpointError(
                    f"the saved stream masks nodes at {key} that this network does not have",
                    hint="restore it into the network that it was saved from",
                )
            values[key] = (~np.isin(order, ids)).astype(np.float32)
        return values


class MaskedExecutable:
    """An executable with its current masks; forks of a stream share it and take turns.

    Parameters
    ----------
    keys : parameters of the executable; a disabled layer has none
    """

    def __init__(self, executable: Any, living: NodeMasks, keys: Container[str]) -> None:
        self._executable, self._keys, self._lock = executable, keys, threading.RLock()
        self._now = living.values

    @contextmanager
    def updated(self, living: NodeMasks) -> Iterator[Any]:
        """Lock the executable, and update its masks."""
        if not living.values:
            yield self._executable
            return
        with self._lock:
            values = {key: value for key, value in living.values.items() if key in self._keys}
            changed = {key: value for key, value in values.items() if not np.array_equal(value, self._now[key])}
            if changed:
                self._executable.update(Params({k: WeightStore.from_array(v) for k, v in changed.items()}))
            self._now = living.values
            yield self._executable


@renamed_members(living="living_nodes", onto="migrate")
class HasNodeMasks:
    """Streams whose fabrics have nodes that can be masked."""

    _node_masks: NodeMasks

    def living_nodes(self, *, at: str | None = None) -> Array:
        """Return the ids of the living nodes of a fabric, ascending.

        Parameters
        ----------
        at : path of the fabric; None: the only one

        Raises
        ------
        SpecError : there is no such fabric, or it is not `dynamic`
        """
        return self._node_masks.ids(at)

    def mask(self, nodes: Iterable[int] | int, *, at: str | None = None) -> None:
        """Mask nodes of a fabric from the next row on, in all of these streams, without recompiling.

        No node reads them, and their states are reset. A fork has separate masks from then on; masks are saved with the
        streams, and resets do not change them.

        Parameters
        ----------
        nodes : ids
        at : path of the fabric; None: the only one

        Raises
        ------
        SpecError : there is no such fabric or node, or the fabric is not `dynamic`; nothing has changed
        """
        self._node_masks.change(nodes, at, 0)
        self._apply_masks()

    def unmask(self, nodes: Iterable[int] | int, *, at: str | None = None) -> None:
        """Unmask nodes of a fabric from the next row on, in all of these streams; they start with reset states.

        Raises
        ------
        SpecError : as in `mask`
        """
        self._node_masks.change(nodes, at, 1)
        self._apply_masks()

    def live_as(self, other: HasNodeMasks) -> None:
        """Take over the masks of other streams of the same fabrics."""
        if self._node_masks.values is not other._node_masks.values:
            self._node_masks.values = other._node_masks.values
            self._apply_masks()

    def _apply_masks(self) -> None:
        """Called when masks have changed; an executable gets them when it runs."""
