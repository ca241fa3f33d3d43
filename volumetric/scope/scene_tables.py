"""A scene, and recordings of it, as the arrays that ``web/views/scene.js`` draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from volumetric.observe.recording import Recording
from volumetric.observe.scene import Scene
from volumetric.scope.document import ScopeView

ROLES: Final = ("input", "cell", "output", "region")
"""Roles of nodes, in the order of their numbers."""


def scene_tables(scene: Scene) -> dict[str, Any]:
    """Return the constant part of a scene: names of nodes, and an array for each of their properties."""
    kinds = list(dict.fromkeys(edge.kind for edge in scene.edges))
    return {
        "kind": scene.kind,
        "names": [node.name for node in scene.nodes],
        "role": np.array([ROLES.index(node.role) for node in scene.nodes], np.uint8),
        "group": np.array(scene.group_of, np.uint16),
        "at": np.array([node.at for node in scene.nodes], np.float32).reshape(-1, 3),
        "size": np.array([node.size for node in scene.nodes], np.int64),
        "roles": ROLES,
        "groups": scene.groups,
        "edges": {
            "source": np.array([edge.source for edge in scene.edges], np.uint32),
            "target": np.array([edge.target for edge in scene.edges], np.uint32),
            "kind": np.array([kinds.index(edge.kind) for edge in scene.edges], np.uint8),
            "delay": np.array([edge.delay for edge in scene.edges], np.int32),
            "kinds": kinds,
        },
        "ports": {name: {"node": port.node, "direction": port.direction} for name, port in scene.ports.items()},
        "families": scene.families,
        "latency": scene.latency,
        "leftOut": scene.left_out,
    }


def recording_tables(recording: Recording, name: str = "") -> dict[str, Any]:
    """Return the frames of a recording; arrays are ``[frames, …]`` as in `Recording`, `odd` and `fired` as bits."""
    return {
        "name": name or recording.meta.title or "recording",
        "ticks": recording.ticks,
        "every": recording.meta.every,
        "missed": recording.meta.missed,
        "node": recording.node,
        "odd": np.packbits(recording.odd, axis=1),
        "fired": np.packbits(recording.fired, axis=1),
        "edge": recording.edge,
        "reset": recording.reset,
        "scale": recording.scale,
        "meters": dict(recording.meters),
    }


def scene_view(
    scene: Scene,
    recordings: Sequence[Recording] = (),
    *,
    name: str = "network",
    label: str = "Network",
    more: Mapping[str, Any] | None = None,
) -> ScopeView:
    """Return the view of a scene in space, with recordings of it, two of which can be compared.

    Parameters
    ----------
    more : further data of the view, such as what its inspector shows
    """  # fmt: skip
    data = {"scene": scene_tables(scene), "recordings": [recording_tables(one) for one in recordings], **(more or {})}
    return ScopeView(kind="scene", name=name, label=label, data=data)
