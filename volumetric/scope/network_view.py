"""The view of a network as it is built: layers, fabrics, programs or genomes in space, with dtypes and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.network import Network
from volumetric.network.grid import Coord
from volumetric.observe.scene import Scene, scene_of
from volumetric.scope.document import ScopeView
from volumetric.scope.scene_tables import class_channel, number_channel, scene_view

if TYPE_CHECKING:
    from volumetric.evolution.genome import Genome
    from volumetric.network.weight_store import WeightStore
    from volumetric.program.layer.program_declaration import Program

EDGES: Final = 20_000
"""Maximum number of edges of a view by default."""
_DECODED: Final = 20_000_000
"""Number of weights up to which their strength is computed."""


def network_view(
    source: Network | Clocked | Genome | Program,
    params: Mapping[str, WeightStore] | None = None,
    *,
    name: str = "network",
    label: str = "Network",
    edges: int = EDGES,
    more: Mapping[str, Any] | None = None,
) -> ScopeView:
    """Return the view of a network, a clocked network, a program or a genome, without activity.

    Of a genome, edges are coloured by weight and nodes can be by bias. With `params`, nodes can be coloured by dtype,
    number of parameters, bits per parameter and, up to 20 million weights, their root mean square.

    Parameters
    ----------
    params : weights of the network
    edges : maximum number of edges; if there are more, an even sample is shown
    more : further data of the view

    Raises
    ------
    SpecError : `source` is none of these, or `edges` is below 0
    """
    from volumetric.evolution.genome import Genome
    from volumetric.program.layer.program_declaration import Program

    if isinstance(source, Genome):
        from volumetric.scope.genome_scene import connection_weights, genome_scene, node_biases

        return scene_view(
            genome_scene(source),
            name=name,
            label=label,
            channels={"bias": number_channel(node_biases(source), "bias")},
            edge_weights=connection_weights(source),
            more=more,
        )
    if isinstance(source, Program):
        source = source.network()
    if not isinstance(source, (Network, Clocked)):
        raise SpecError(f"network_view shows networks, programs and genomes, got {type(source).__name__}")
    scene = scene_of(source, edges=edges)
    return scene_view(scene, name=name, label=label, channels=weight_channels(scene, params or {}), more=more)


def weight_channels(scene: Scene, params: Mapping[str, WeightStore]) -> dict[str, dict[str, Any]]:
    """Return what the page can show of the weights of each node's layer; empty if no layer of the grid has any.

    A layer's dtype is that of most of its weights. All nodes of a fabric show those of their fabric.
    """
    by_coord: dict[tuple[int, ...], list[WeightStore]] = {}
    for key, store in params.items():
        coord = Coord.parse(key.partition("/")[0])
        by_coord.setdefault((coord.z, coord.y, coord.x, coord.slot), []).append(store)
    if not by_coord or all(node.coord is None for node in scene.nodes):
        return {}
    dtypes: dict[tuple[int, ...], str] = {}
    counts: dict[tuple[int, ...], int] = {}
    bits: dict[tuple[int, ...], float] = {}
    strengths: dict[tuple[int, ...], float] = {}
    total = sum(store.size for store in params.values())
    for coord, stores in by_coord.items():
        sizes = [store.size for store in stores]
        by_dtype: dict[str, int] = {}
        for store, size in zip(stores, sizes, strict=True):
            by_dtype[store.dtype] = by_dtype.get(store.dtype, 0) + size
        dtypes[coord] = max(by_dtype, key=by_dtype.__getitem__)
        counts[coord] = sum(sizes)
        if counts[coord]:
            bits[coord] = 8 * sum(store.nbytes for store in stores) / counts[coord]
        if total <= _DECODED and counts[coord]:
            squares = sum(float(np.square(store.values(), dtype=np.float64).sum()) for store in stores)
            strengths[coord] = (squares / counts[coord]) ** 0.5
    where = [node.coord or () for node in scene.nodes]
    channels = {
        "dtype": class_channel([dtypes.get(coord, "no weights") for coord in where], "dtype of weights"),
        "parameters": number_channel(np.array([counts.get(coord, 0) for coord in where]), "parameters"),
        "bits": number_channel(np.array([bits.get(coord, 0.0) for coord in where]), "bits per parameter", "bits"),
    }
    if strengths:
        values = np.array([strengths.get(coord, 0.0) for coord in where])
        channels["weights"] = number_channel(values, "root mean square of weights")
    return channels
