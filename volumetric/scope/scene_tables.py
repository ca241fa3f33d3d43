"""A scene, and recordings of it, as the arrays that ``web/views/scene.js`` draws."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.observe.recording import Recording
from volumetric.observe.scene import Scene
from volumetric.scope.document import ScopeView

ROLES: Final = ("input", "cell", "output", "region")
"""Roles of nodes, in the order of their numbers."""
NODES: Final = 200_000
"""Maximum number of nodes of a page."""
EDGES: Final = 1_000_000
"""Maximum number of edges of a page."""
_LISTED: Final = 2000
"""Number of names above which they are stored as a few texts, with a number for each node."""
_NUMBERED: Final = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})", re.DOTALL)


def scene_tables(scene: Scene) -> dict[str, Any]:
    """Return the constant part of a scene: names of nodes, and an array for each of their properties.

    An array ``coord`` has z, y, x and slot of each node's layer, -1 for none; ``extent`` the widths of its box, 0 for a
    point. Both stand there only if some node has one, and so does a class channel ``clock``. ``low`` and ``high`` are
    the bounds of all nodes.

    Raises
    ------
    SpecError : the scene has more than 200,000 nodes or 1,000,000 edges
    """
    for what, count, most in (("nodes", len(scene.nodes), NODES), ("edges", len(scene.edges), EDGES)):
        if count > most:
            raise SpecError(f"a page shows up to {most:,} {what}, this scene has {count:,}")
    nodes, edges = scene.nodes, scene.edges
    groups, roles = scene.groups, {role: i for i, role in enumerate(ROLES)}
    kinds = list(dict.fromkeys(edge.kind for edge in edges))
    kind_of = {kind: i for i, kind in enumerate(kinds)}
    at = np.array([node.at for node in nodes], np.float32).reshape(-1, 3)
    tables: dict[str, Any] = {
        "kind": scene.kind,
        "names": packed_names([node.name for node in nodes]),
        "role": np.array([roles[node.role] for node in nodes], np.uint8),
        "group": np.array(scene.group_of, np.uint16 if len(groups) <= 1 << 16 else np.uint32),
        "at": at,
        "size": np.array([node.size for node in nodes], np.float64),
        "roles": ROLES,
        "groups": groups,
        "low": at.min(0, initial=np.inf).tolist() if len(at) else [0, 0, 0],
        "high": at.max(0, initial=-np.inf).tolist() if len(at) else [0, 0, 0],
        "edges": {
            "source": np.array([edge.source for edge in edges], np.uint32),
            "target": np.array([edge.target for edge in edges], np.uint32),
            "kind": np.array([kind_of[edge.kind] for edge in edges], np.uint8 if len(kinds) <= 1 << 8 else np.uint32),
            "delay": np.array([edge.delay for edge in edges], np.int32),
            "kinds": kinds,
        },
        "ports": {name: {"node": port.node, "direction": port.direction} for name, port in scene.ports.items()},
        "families": scene.families,
        "latency": scene.latency,
        "leftOut": scene.left_out,
    }
    if any(node.coord is not None for node in nodes):
        tables["coord"] = np.array([node.coord or (-1, -1, -1, -1) for node in nodes], np.int32)
    if any(node.clock for node in nodes):
        every = "every row" if scene.kind in ("stack", "program") else "every tick"
        tables["channels"] = {"clock": class_channel([node.clock or every for node in nodes], "clock")}
    if any(node.extent is not None for node in nodes):
        tables["extent"] = np.array([node.extent or (0.0, 0.0, 0.0) for node in nodes], np.float32)
    return tables


def packed_names(names: Sequence[str]) -> list[str] | dict[str, Any]:
    """Return names as they are, or, if they are many and most end in numbers, as distinct texts and numbers.

    Node i is then called ``texts[text[i]]`` followed by ``number[i]``, unless that is -1; `expand_names.js` reads it.
    """
    if len(names) <= _LISTED:
        return list(names)
    texts: dict[str, int] = {}
    text, number = np.empty(len(names), np.uint32), np.full(len(names), -1, np.int32)
    for i, name in enumerate(names):
        match = _NUMBERED.fullmatch(name)
        start, digits = (name, None) if match is None else (match[1], match[2])
        text[i] = texts.setdefault(start, len(texts))
        if digits is not None:
            number[i] = int(digits)
    if len(texts) > len(names) // 2:
        return list(names)
    return {"texts": list(texts), "text": text if len(texts) > 1 << 16 else text.astype(np.uint16), "number": number}


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


def number_channel(values: Array, label: str, unit: str = "") -> dict[str, Any]:
    """Return numbers of nodes that the page can show as colours or sizes, such as gradients.

    Parameters
    ----------
    values : one per node; those that are not finite are shown in a colour of their own
    """
    return {"label": label, "unit": unit, "values": np.asarray(values, np.float32)}


def class_channel(classes: Sequence[str], label: str) -> dict[str, Any]:
    """Return names of classes of nodes, one per node, that the page can show as colours, such as dtypes."""
    names = list(dict.fromkeys(classes))
    numbers = {name: i for i, name in enumerate(names)}
    of = np.array([numbers[name] for name in classes], np.uint8 if len(names) <= 1 << 8 else np.uint32)
    return {"label": label, "names": names, "classes": of}


def scene_view(
    scene: Scene,
    recordings: Sequence[Recording] = (),
    *,
    name: str = "network",
    label: str = "Network",
    channels: Mapping[str, Mapping[str, Any]] | None = None,
    edge_weights: Array | None = None,
    more: Mapping[str, Any] | None = None,
) -> ScopeView:
    """Return the view of a scene in space, with recordings of it, two of which can be compared.

    Parameters
    ----------
    channels : name → further numbers or classes of nodes, of `number_channel` or `class_channel`
    edge_weights : signed weight of each edge, shown as a colour
    more : further data of the view, such as what its inspector shows

    Raises
    ------
    ShapeError : a channel or `edge_weights` has another number of values than there are nodes or edges
    """
    tables = scene_tables(scene)
    for key, channel in (channels or {}).items():
        count = len(channel["values"] if "values" in channel else channel["classes"])
        if count != len(scene.nodes):
            raise ShapeError(f"channel {key!r} has {count} values for {len(scene.nodes)} nodes")
    if channels:
        tables["channels"] = tables.get("channels", {}) | {key: dict(channel) for key, channel in channels.items()}
    if edge_weights is not None:
        if np.shape(edge_weights) != (len(scene.edges),):
            raise ShapeError(f"edge_weights has shape {list(np.shape(edge_weights))}, expected [{len(scene.edges)}]")
        tables["edges"]["weight"] = np.asarray(edge_weights, np.float32)
    data = {"scene": tables, "recordings": [recording_tables(one) for one in recordings], **(more or {})}
    return ScopeView(kind="scene", name=name, label=label, data=data)
