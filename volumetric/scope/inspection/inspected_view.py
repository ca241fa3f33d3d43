"""Adds to a scene what its inspector shows: all of a small network; of others the page's program answers the rest."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.network import Network, Params
from volumetric.scope.document import ScopeView, encode_message
from volumetric.scope.inspection.inspection import ACTIONS, Inspection
from volumetric.scope.inspection.layer_facts import fabric_nodes, layer_facts, program_nodes
from volumetric.scope.inspection.parameter_blocks import matrix_shape, parameter_block

if TYPE_CHECKING:
    from volumetric.scope.live_server import LiveSource

BYTES: Final = 120_000
"""Default bytes of weights in a page, and of compressed numbers with their explanations."""
_STATISTICS: Final = 20_000_000
"""Weights of a network up to which a page has histograms."""
_SIDE: Final = 48
_STEPS: Final = 10
_TERMS: Final = 8
_EACH: Final = 8


def inspected(
    view: ScopeView,
    network: Network | Clocked,
    params: Params,
    rows: Array | Mapping[str, Array] | None = None,
    *,
    resets: Array | None = None,
    per_row: int = 1,
    row: int = 0,
    explain: Sequence[int] | None = None,
    most_bytes: int = BYTES,
) -> ScopeView:
    """Return the view of a scene with what its inspector shows.

    Parameters
    ----------
    view : view of `scene_tables.scene_view`, of this network
    rows : recorded rows, ``[T, …]`` or ``[B, T, …]``, or a dict by input; None: the page has no numbers
    resets : ``[T]`` or ``[B, T]``, 1 for a row that starts a new sequence
    per_row : ticks for each row, for clocked networks
    row : index of the recorded sequence, if there are several
    explain : rows or ticks, from 0, whose numbers the page has; None: eight of them, evenly spread, the last one first
    most_bytes : maximum bytes of weights, and of numbers and explanations; what does not fit is left out, and the page
        says so. A page with a program behind it asks that (`InspectionSource`)

    Raises
    ------
    SpecError : the view is not a scene, or not of this network
    ShapeError : rows do not match the network's inputs

    Examples
    --------
    >>> view = inspected(scene_view(recording.scene, [recording]), network, params, x[0])  # doctest: +SKIP
    """
    inspection = Inspection(network, params, rows, resets=resets, per_row=per_row, row=row)
    nodes = view.data.get("scene", {}).get("role", ())
    count = sum(count for _, _, count in inspection.spans)
    if len(nodes) != count:
        raise SpecError("the view is not a scene of this network", hint="make it by scene_view(scene_of(network))")
    return replace(view, data={**view.data, "inspection": inspection_data(inspection, explain, most_bytes)})


class InspectionSource:
    """What answers the inspector of a served page; a `LiveSource` for `Viewer`.

    Parameters
    ----------
    inspections : name of a view → its inspection
    others : takes all other actions, such as a stream that runs; None: they are refused
    """

    def __init__(self, inspections: Mapping[str, Inspection], others: LiveSource | None = None) -> None:
        self._inspections, self._others = dict(inspections), others

    def connect(self, send: Callable[[Mapping[str, Any]], None]) -> None:
        """Connect the other source; the inspector sends nothing by itself."""
        if self._others is not None:
            self._others.connect(send)

    def act(self, view: str, action: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer an action, see `Inspection.act`; those of the other source go there."""
        if view in self._inspections and (self._others is None or action.get("do") in ACTIONS):
            return self._inspections[view].act(action)
        if self._others is None:
            raise SpecError(f"nothing can be inspected in the view {view!r:.40}")
        return self._others.act(view, action)

    def __getattr__(self, name: str) -> Any:
        """Return what the other source has besides, such as the snapshot for a page that connects late."""
        if self.__dict__.get("_others") is None or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._others, name)

    def close(self) -> None:
        """Close the other source."""
        if self._others is not None:
            self._others.close()


def inspection_data(inspection: Inspection, explain: Sequence[int] | None, most_bytes: int) -> dict[str, Any]:
    """Return the data of the inspector: facts of layers, weights and numbers within `most_bytes` each.

    Returns
    -------
    dict
        ``layers``: `layer_facts` with ``first`` and ``count`` of their nodes, for fabrics and programs ``nodes``;
        ``weights``: key → block; ``numbers``: JSON text as bytes, a list of ``t``, ``node``, ``fired``, ``groups``, and
        ``explained``: group → list of traces; ``rows``: the rows in it; ``count``: rows that can be explained;
        ``missing``: sentences
    """
    network, spans = inspection.network, inspection.spans
    sizes = sum(store.size for store in inspection.params.values())
    layers: list[dict[str, Any]] = []
    for coord, first, count in spans:
        facts = layer_facts(inspection.machine, inspection.params, coord, statistics=sizes <= _STATISTICS)
        facts |= {"first": first, "count": count}
        spec = network.layers[coord]
        if isinstance(spec, Fabric):
            facts["nodes"] = fabric_nodes(spec)
        elif inspection.program is not None:
            facts["regions"] = program_nodes(inspection.program)
        layers.append(facts)
    weights, without = _weights(inspection, most_bytes)
    numbers, rows, later = _numbers(inspection, explain, most_bytes)
    missing = [f"{without} of the matrices of weights are not in this page"] if without else []
    missing += [later] if later else []
    return {
        "layers": layers,
        "weights": weights,
        "numbers": np.frombuffer(f"[{','.join(numbers)}]".encode(), np.uint8),
        "rows": rows,
        "count": inspection.count,
        "ticks": isinstance(inspection.machine, Clocked),
        "why": inspection.why if not inspection.count else "",
        "missing": missing,
    }


def _weights(inspection: Inspection, most_bytes: int) -> tuple[dict[str, Any], int]:
    """Return blocks of parameters by key, the smallest first, and how many parameters have none."""
    network = inspection.network
    keys = {network.resolve(f"{coord}/{p.name}") for coord, spec in network.layers.items() for p in spec.tensors()}
    blocks: dict[str, Any] = {}
    left, without = most_bytes, 0
    for key in sorted(keys, key=lambda key: (inspection.params[key].size, key)):
        store = inspection.params[key]
        height, width = matrix_shape(store.shape)
        exact = 4 * height * width * (1 if store.dtype == "float32" else 2)
        if exact <= left and exact <= most_bytes // 2 and height * width:
            blocks[key] = parameter_block(store, (0, height), (0, width), side=max(height, width))
            left -= exact
        elif 0 < height * width <= _STATISTICS and (rough := 8 * min(height, _SIDE) * min(width, _SIDE)) <= left:
            blocks[key] = parameter_block(store, (0, height), (0, width), side=_SIDE)
            left -= rough
        else:
            without += 1
    return blocks, without


def _numbers(
    inspection: Inspection, explain: Sequence[int] | None, most_bytes: int
) -> tuple[list[str], list[int], str]:
    """Return numbers of nodes as JSON texts, their rows, and a sentence about those that are left out, or ""."""
    if not inspection.count:
        return [], [], ""
    last = inspection.count - 1
    if explain is None:
        explain = list(dict.fromkeys(np.linspace(last, 0, _EACH).round().astype(int).tolist()))
    numbers: list[str] = []
    rows: list[int] = []
    left = most_bytes
    nodes = [node for _, first, count in inspection.spans for node in range(first, first + count)]
    for t in explain:
        for node in nodes:
            text = _entry(inspection, node, t)
            left -= len(zlib.compress(text.encode(), 6))
            if left < 0:
                return numbers, rows, "the numbers of some nodes and rows are not in this page"
            numbers.append(text)
            rows = rows if t in rows else [*rows, t]
    return numbers, rows, ""


def _entry(inspection: Inspection, node: int, t: int) -> str:
    """Return the numbers of a node with explanations of the first ones."""
    entry = {"node": node, **inspection.numbers(node, t)}
    explained = {
        group["name"]: [
            inspection.explain(node, t, group["name"], index, steps=_STEPS, terms=_TERMS)
            for index in range(min(_EACH, group["count"]))
        ]
        for group in entry["groups"][:2]
    }
    return encode_message({**entry, "explained": explained})
