"""A copy of a sculpted network as a new checkpoint."""

from __future__ import annotations

from pathlib import Path

from volumetric.base.errors import CheckpointError
from volumetric.clocked import Clocked
from volumetric.network import Params
from volumetric.network.weight_store import WeightStore
from volumetric.run.streams.node_masks import NodeMasks
from volumetric.scope.sculpting.network_changes import Changes
from volumetric.scope.sculpting.scene_places import ScenePlaces


def save_checkpoint(path: Path, places: ScenePlaces, origin: ScenePlaces, changes: Changes) -> Path:
    """Write a network with its weights, clocks and masks as a native checkpoint, and return its directory.

    Raises
    ------
    CheckpointError : there is something at the path already, or it cannot be written
    """
    from volumetric.loaders.native_checkpoint import save_native

    if path.exists():
        raise CheckpointError(
            f"{path} exists already; a copy is written to a new directory", hint="choose another path"
        )
    params = _with_masks(places, origin, changes)
    clocked = places.machine if isinstance(places.machine, Clocked) else None
    save_native(path, places.network, params, clocked=clocked)
    return path


def _with_masks(places: ScenePlaces, origin: ScenePlaces, changes: Changes) -> Params:
    """Return the weights with masked nodes of fabrics in their buffers."""
    masks = NodeMasks(places.network, places.params)
    for coord, part in places.fabrics.items():
        ids = origin.fabric_ids(origin.fabrics[coord], changes.masked)
        if ids and part.spec.dynamic:
            masks.change(ids, str(coord), 0)
    return Params({**places.params, **{key: WeightStore.from_array(value) for key, value in masks.values.items()}})
