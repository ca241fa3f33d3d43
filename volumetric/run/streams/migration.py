"""Converts the states of streams for a network whose fabrics have other nodes: states follow node ids."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.layers import StateSpec
from volumetric.layers.node_layer import NodeEntries, node_layers_in
from volumetric.network import Network
from volumetric.run.kv_value import KvValue, as_numbers
from volumetric.run.lower import lower
from volumetric.run.state_file import SavedValues, restore_state, save_state


def migrate_streams(parts: list[bytes], before: Network, after: Network, *, rewired: bool = False) -> list[bytes]:
    """Convert the saved bytes of each stream from one network to the other; new nodes start with initial states.

    Parameters
    ----------
    rewired : anything may differ; see `RowStream.migrate`

    Raises
    ------
    SpecError : the states differ in something other than nodes; or, if `rewired`, the other network has rows that these
        streams have not
    """
    old_states, new_states = lower(before).states, lower(after).states
    ways = state_mappings(before, after, old_states, new_states, rewired=rewired)
    return [_migrate_stream(part, old_states, new_states, ways) for part in parts]


def change_streams(parts: list[bytes], network: Network, change: Callable[[str, Array], Array]) -> list[bytes]:
    """Return the saved bytes of streams with their states of fixed size replaced; see `RowStream.change_states`."""
    states = lower(network).states
    streams = [SavedValues({}, 0) for _ in parts]
    for saved, part in zip(streams, parts, strict=True):
        restore_state(saved, part, states, sys.maxsize)
    begun = [saved for saved in streams if saved.position]
    for key, spec in states.items() if begun else ():
        if spec.kind == "fixed":
            before = np.stack([as_numbers(saved.values[key], np.dtype(spec.dtype)) for saved in begun])
            after = change(key, before.reshape(len(begun), *spec.shape))
            for saved, value in zip(begun, after, strict=True):
                saved.values = {**saved.values, key: np.ascontiguousarray(value, spec.dtype)}
    return [save_state(saved, states) for saved in streams]


def state_mappings(
    before: Network,
    after: Network,
    old_states: Mapping[str, Any],
    new_states: Mapping[str, Any],
    *,
    rewired: bool = False,
) -> dict[str, tuple[NodeEntries, NodeEntries]]:
    """Return the old and new entries of each state whose entries follow nodes, by key.

    Parameters
    ----------
    old_states, new_states : states of the two networks by key: objects with a shape
    rewired : anything may differ; edges of fabrics do not count then

    Raises
    ------
    SpecError : the states differ in something other than nodes
    """
    old, new = node_layers_in(before.layers), node_layers_in(after.layers)
    ways: dict[str, tuple[NodeEntries, NodeEntries]] = {}
    for path in old.keys() & new.keys():
        same = old[path].without_masks() == new[path].without_masks()
        if same or (
            rewired and old[path].state_entries().keys() - {"past"} == new[path].state_entries().keys() - {"past"}
        ):
            of, to = old[path].state_entries(), new[path].state_entries()
            ways |= {f"{path}/{name}": (of.get(name, to[name]), to[name]) for name in to}
    if not rewired:
        _check(old_states, new_states, ways)
    return ways


def _check(old_states: Mapping[str, Any], new_states: Mapping[str, Any], follow: Collection[str]) -> None:
    for key in (*new_states, *old_states):
        of, to = old_states.get(key), new_states.get(key)
        if key not in follow and of != to and not key.endswith("/past"):
            here, there = ("nothing" if one is None else f"values {list(one.shape)}" for one in (to, of))
            raise SpecError(
                f"streams cannot continue in the other network: its state {key} has {here}, theirs has {there}",
                hint="only nodes of fabrics may differ",
            )


def _migrate_stream(
    part: bytes,
    old_states: Mapping[str, StateSpec],
    new_states: Mapping[str, StateSpec],
    ways: Mapping[str, tuple[NodeEntries, NodeEntries]],
) -> bytes:
    saved = SavedValues({}, 0)
    restore_state(saved, part, old_states, sys.maxsize)
    values: dict[str, KvValue] = {}
    for key, spec in new_states.items() if saved.position else ():
        if key in ways:
            value = saved.values.get(key, np.zeros((0, *spec.shape[1:]), np.float32))
            values[key] = migrate_state(value, old_states.get(key, spec).shape, spec.shape, *ways[key])
        elif old_states.get(key) == spec:
            values[key] = saved.values[key]
        elif spec.kind == "rows":
            raise SpecError(
                f"streams cannot continue in the other network: its state {key} has rows, these streams have none",
                hint="reset the streams first",
            )
        else:
            values[key] = np.full(spec.shape, spec.start, spec.dtype)
    return save_state(SavedValues(values, saved.position), new_states)


def migrate_state(
    value: KvValue, shape: tuple[int, ...], to: tuple[int, ...], before: NodeEntries, after: NodeEntries
) -> Array:
    """Return a state of one stream in the shape `to`, from `value` in the old shape."""
    fresh = np.zeros(to, np.float32)
    numbers = as_numbers(value, np.dtype(np.float32))
    if not numbers.size:
        return fresh
    numbers = numbers.reshape(shape)
    if after.axis == 0:
        return after.carry_over(numbers, before, fresh)
    # A history of the last rows, newest first, has as many rows as the longest delay of edges.
    count = min(shape[0], to[0])
    fresh[:count] = after.carry_over(numbers[:count], before, fresh[:count])
    return fresh
