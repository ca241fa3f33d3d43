"""What the nodes of a model can be coloured and sized by: numeric types, sizes, damage, similarity, attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.loaders import LoadedModel
from volumetric.scope.model_nodes import TowerNode
from volumetric.scope.model_table import relative_error


def where_of(name: str) -> str:
    """Return the coordinate in a node's name: ``"block 3 4.0.0.1: head 2"`` or ``"4.0.0.1 dense"`` → ``"4.0.0.1"``."""
    return name.partition(":")[0].rpartition(" ")[2] if ":" in name else name.partition(" ")[0]


def node_channels(
    loaded: LoadedModel,
    nodes: Sequence[TowerNode],
    similarity: Mapping[str, float] | None,
    attention: Mapping[str, F32Array] | None,
) -> dict[str, dict[str, Any]]:
    """Return what nodes can be coloured or sized by: numbers (0 where there is none), or classes with names."""
    params = loaded.params
    count = np.zeros(len(nodes))
    size = np.zeros(len(nodes))
    dtypes: list[str] = []
    for i, node in enumerate(nodes):
        stores = [(params[key], share) for key, share in node.parts.items() if key in params]
        count[i] = sum(prod(store.shape) * share for store, share in stores)
        size[i] = sum(store.nbytes * share for store, share in stores)
        most = max(stores, key=lambda pair: prod(pair[0].shape) * pair[1], default=None)
        dtypes.append("no weights" if most is None else str(most[0].scheme))
    bits = np.divide(8 * size, count, out=np.zeros(len(nodes)), where=count > 0)
    channels: dict[str, dict[str, Any]] = {
        "dtype": _classes("numeric type", dtypes),
        "parameters": _numbers("parameters", "", count),
        "bytes": _numbers("bytes", "B", size),
        "bits": _numbers("bits per weight", "bits", bits),
    }
    if any(node.errors for node in nodes):
        error = [relative_error(list(node.errors)) for node in nodes]
        channels["error"] = _numbers("relative error", "", [0.0 if e is None else e for e in error])
    if loaded.damage:
        known = [sum(loaded.damage.get(key, 0.0) * share for key, share in node.parts.items()) for node in nodes]
        channels["damage"] = _numbers("damage", "nats per token", known)
    if similarity:
        values = [similarity.get(where_of(node.name), 1.0) for node in nodes]
        channels["similarity"] = _numbers("similarity of DNA", "", values)
    if attention:
        spread = [_of_head(node, attention) for node in nodes]
        channels["entropy"] = _numbers("entropy of attention", "bits", spread)
    return channels


def _of_head(node: TowerNode, attention: Mapping[str, F32Array]) -> float:
    """Return the number of a query head, or the mean of several; 0 for other nodes."""
    values = attention.get(where_of(node.name))
    if values is None or node.family != "attention":
        return 0.0
    first, _, last = node.name.rpartition(" ")[2].partition("–")
    return float(values[int(first) : int(last or first) + 1].mean())


def _numbers(label: str, unit: str, values: Any) -> dict[str, Any]:
    return {"label": label, "unit": unit, "values": np.asarray(values, np.float32)}


def _classes(label: str, values: Sequence[str]) -> dict[str, Any]:
    names = [*dict.fromkeys(values)]
    places = {text: i for i, text in enumerate(names)}
    return {"label": label, "names": names, "classes": np.array([places[v] for v in values], np.uint16)}
