"""Conversion of genomes to networks of dense layers and back.

A feed-forward genome becomes one layer for each depth. If a later layer needs a value, the layer becomes a `Parallel`
of one `Dense` for each activation of its nodes, and a `Dense` that copies the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS, CONNECTION, NODE, GenomeInterface
from volumetric.evolution.genome import Genome, topological_order, validate
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import Dense, LayerSpec, Parallel
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore

_STEEP: Final = 4.9
_ENGINE: Final[Mapping[str, tuple[Activation, float]]] = {
    "steep_sigmoid": ("sigmoid", _STEEP),
    "sigmoid": ("sigmoid", 1.0),
    "tanh": ("tanh", 1.0),
    "relu": ("relu", 1.0),
    "linear": ("linear", 1.0),
    "leaky_relu": ("leaky_relu", 1.0),
    "silu": ("silu", 1.0),
    "gelu": ("gelu", 1.0),
}
"""Activation of a node → activation of a layer, and the factor on its argument."""
_SUMS: Final = ("sum", "mean")

Weights = dict[int, float]
F32Array = NDArray[np.float32]


def to_network(genome: Genome) -> tuple[Network, Params]:
    """Return a network of dense layers equivalent to `genome`, in float32.

    Raises
    ------
    UnsupportedError : the genome is recurrent, or no layer has the activation or aggregation of an active node
    """
    if genome.interface.recurrent:
        raise UnsupportedError(
            "a recurrent genome cannot become a chain of layers: all its nodes change at once",
            hint="evolve with recurrent=false",
        )
    needed = _needed_nodes(genome)
    _refuse_unknown(genome, needed)
    depths = _depths(genome, needed)
    carried = list(range(genome.interface.inputs))
    layers: list[LayerSpec] = []
    tensors: dict[str, F32Array] = {}
    last = max(depths.values())
    outputs = list(range(genome.interface.inputs, genome.interface.inputs + genome.interface.outputs))
    for depth in range(1, last + 1):
        fired = [node for node, at in depths.items() if at == depth]
        alive = [node for node in carried if _read_later(genome, needed, depths, node, depth, outputs)]
        carried = _append(genome, layers, tensors, carried, alive, fired)
    if carried != outputs:
        select = np.array([[float(node == output) for node in carried] for output in outputs], np.float32)
        tensors[f"{len(layers)}/weight"] = select
        layers.append(Dense(in_features=len(carried), out_features=len(outputs), bias=False))
    network = Network(
        grid=Grid(len(layers)),
        layers={Coord(z): spec for z, spec in enumerate(layers)},
        input_shape=(genome.interface.inputs,),
        input_dtype="float32",
    )
    stores = {_key(name): WeightStore.from_array(values) for name, values in tensors.items()}
    return network, Params(stores)


def from_network(network: Network, params: Mapping[str, WeightStore]) -> Genome:
    """Return a genome equivalent to a chain of dense layers.

    Parallel layers, as `to_network` writes them, count as one. A weight of exactly 0 gives no connection, and a row
    that copies one value gives no node.

    Raises
    ------
    UnsupportedError : the network has another layer, a link, or an activation that nodes do not have
    """
    chain = _chain(network)
    unknown = sorted({spec.activation for layer in chain for _, spec in layer} - set(ACTIVATIONS))
    if unknown:
        raise UnsupportedError(f"nodes of genomes have no activation {', '.join(unknown)}")
    inputs = chain[0][0][1].in_features
    outputs = sum(spec.out_features for _, spec in chain[-1])
    before = list(range(inputs))
    ends, hidden = iter(range(inputs, inputs + outputs)), inputs + outputs
    nodes: list[tuple[int, int, int, float]] = []
    genes: list[tuple[int, int, int, float, bool]] = []
    for number, layer in enumerate(chain):
        after: list[int] = []
        for weights, bias, activation in _rows(network, params, layer):
            (used,) = np.nonzero(weights)
            copies = activation == "linear" and bias == 0 and len(used) == 1 and weights[used[0]] == 1
            if number < len(chain) - 1:
                if copies:
                    after.append(before[int(used[0])])
                    continue
                node, hidden = hidden, hidden + 1
            else:
                node = next(ends)
            after.append(node)
            nodes.append((node, ACTIVATIONS.index(activation), 0, bias))
            genes += [(0, before[j], node, float(weights[j]), True) for j in used.tolist()]
        before = after
    connections = np.array(_merge_genes(genes), CONNECTION)
    connections["innovation"] = np.arange(len(connections))
    genome = Genome(
        interface=GenomeInterface(inputs=inputs, outputs=outputs),
        nodes=np.array(sorted(nodes), NODE),
        connections=connections,
    )
    validate(genome)
    return genome


def _chain(network: Network) -> list[list[tuple[str, Dense]]]:
    """Return the layers of a network, each as parallel dense layers with their key prefixes."""
    chain: list[list[tuple[str, Dense]]] = []
    if network.links:
        raise UnsupportedError("a genome needs a chain of dense layers, but the network has links")
    for coord, spec in network.layers.items():
        if coord in network.disabled:
            continue
        layer = [(f"{coord}/", spec)]
        if isinstance(spec, Parallel) and spec.combine == "concat":
            layer = [(f"{coord}/{i}/", branch) for i, branch in enumerate(spec.branches)]
        dense = [(start, branch) for start, branch in layer if isinstance(branch, Dense)]
        if len(dense) < len(layer):
            odd = next(branch.kind for _, branch in layer if not isinstance(branch, Dense))
            raise UnsupportedError(f"a genome needs a chain of dense layers, but the network has {odd} at {coord}")
        chain.append(dense)
    if not chain:
        raise UnsupportedError("a genome needs a chain of dense layers, but the network has no active layer")
    return chain


def _rows(
    network: Network, params: Mapping[str, WeightStore], layer: Sequence[tuple[str, Dense]]
) -> Iterator[tuple[NDArray[np.float64], float, str]]:
    """Yield weights, bias and activation of each output of a layer."""
    for start, spec in layer:
        weight = params[network.resolve(start + "weight")].values().astype(np.float64)
        bias = params[network.resolve(start + "bias")].values() if spec.bias else np.zeros(spec.out_features)
        for row, offset in zip(weight, bias.tolist(), strict=True):
            yield row, float(offset), spec.activation


def _merge_genes(genes: Sequence[tuple[int, int, int, float, bool]]) -> list[tuple[int, int, int, float, bool]]:
    """Merge genes between the same two nodes: a value may have been copied twice."""
    sums: dict[tuple[int, int], float] = {}
    for _, source, target, weight, _ in genes:
        sums[source, target] = sums.get((source, target), 0.0) + weight
    return [(0, source, target, weight, True) for (source, target), weight in sums.items()]


def _incoming(genome: Genome, node: int) -> list[tuple[int, float]]:
    genes = genome.connections[(genome.connections["target"] == node) & genome.connections["enabled"]]
    return list(zip(genes["source"].tolist(), genes["weight"].tolist(), strict=True))


def _needed_nodes(genome: Genome) -> set[int]:
    """Return the outputs and the nodes that they depend on."""
    inputs = genome.interface.inputs
    needed = set(range(inputs, inputs + genome.interface.outputs))
    open_ends = list(needed)
    while open_ends:
        for source, _ in _incoming(genome, open_ends.pop()):
            if source >= inputs and source not in needed:
                needed.add(source)
                open_ends.append(source)
    return needed


def _refuse_unknown(genome: Genome, needed: set[int]) -> None:
    nodes = [node for node in genome.nodes if int(node["id"]) in needed]
    odd = {ACTIVATIONS[node["activation"]] for node in nodes} - set(_ENGINE)
    several = [node for node in nodes if AGGREGATIONS[node["aggregation"]] not in _SUMS]
    odd |= {AGGREGATIONS[node["aggregation"]] for node in several}
    if odd:
        raise UnsupportedError(
            f"no layer computes {', '.join(sorted(odd))}",
            hint=f"layers have {', '.join(_ENGINE)} and the aggregations {' and '.join(_SUMS)}",
        )


def _depths(genome: Genome, needed: set[int]) -> dict[int, int]:
    """Return the depth of each node, in the order of ids: 1 more than its deepest source; final outputs are last."""
    ids = genome.nodes["id"].tolist()
    depths: dict[int, int] = {}
    for position in topological_order(genome):
        node = ids[position]
        if node in needed:
            depths[node] = 1 + max((depths.get(source, 0) for source, _ in _incoming(genome, node)), default=0)
    deepest = max(depths.values())
    read = {source for node in needed for source, _ in _incoming(genome, node)}
    first = genome.interface.inputs
    for output in range(first, first + genome.interface.outputs):
        if output not in read:
            depths[output] = deepest
    return dict(sorted(depths.items()))


def _read_later(
    genome: Genome, needed: set[int], depths: dict[int, int], node: int, depth: int, outputs: Sequence[int]
) -> bool:
    """Whether the value of `node` is needed after the layer at `depth`."""
    if node in outputs:
        return True
    return any(depths[other] > depth and node in dict(_incoming(genome, other)) for other in needed)


def _append(
    genome: Genome,
    layers: list[LayerSpec],
    tensors: dict[str, F32Array],
    carried: Sequence[int],
    alive: Sequence[int],
    fired: Sequence[int],
) -> list[int]:
    """Add the layer that fires some nodes and copies the values that are still needed; return its outputs."""
    place = {node: j for j, node in enumerate(carried)}
    branches: list[tuple[Dense, F32Array, F32Array | None]] = []
    if alive:
        copy = np.zeros((len(alive), len(carried)), np.float32)
        copy[np.arange(len(alive)), [place[node] for node in alive]] = 1.0
        branches.append((Dense(in_features=len(carried), out_features=len(alive), bias=False), copy, None))
    by_activation: dict[Activation, list[int]] = {}
    records = {int(node["id"]): node for node in genome.nodes}
    for node in fired:
        by_activation.setdefault(_ENGINE[ACTIVATIONS[records[node]["activation"]]][0], []).append(node)
    for activation, members in by_activation.items():
        rows = [_row(genome, records[node], place) for node in members]
        spec = Dense(in_features=len(carried), out_features=len(members), activation=activation)
        weight = np.array([weights for weights, _ in rows]).astype(np.float32)
        branches.append((spec, weight, np.array([bias for _, bias in rows]).astype(np.float32)))
    number = len(layers)
    for i, (_, weight, bias) in enumerate(branches):
        start = f"{number}/{i}/" if len(branches) > 1 else f"{number}/"
        tensors[start + "weight"] = weight
        if bias is not None:
            tensors[start + "bias"] = bias
    specs = tuple(spec for spec, _, _ in branches)
    layers.append(specs[0] if len(specs) == 1 else Parallel(branches=specs, combine="concat"))
    return [*alive, *(node for members in by_activation.values() for node in members)]


def _row(genome: Genome, node: np.void, place: Mapping[int, int]) -> tuple[NDArray[np.float64], float]:
    """Return weights and bias of one node, in float64, with the scale of its activation and aggregation."""
    incoming = _incoming(genome, int(node["id"]))
    scale = _ENGINE[ACTIVATIONS[node["activation"]]][1]
    share = scale / len(incoming) if AGGREGATIONS[node["aggregation"]] == "mean" and incoming else scale
    row = np.zeros(len(place))
    for source, weight in incoming:
        row[place[source]] = share * weight
    return row, scale * float(node["bias"])


def _key(name: str) -> str:
    """Return the key of a tensor: ``"2/0/weight"`` → ``"2.0.0.0/0/weight"``."""
    number, _, rest = name.partition("/")
    if not rest:
        raise SpecError(f"{name!r} is not a parameter")
    return f"{Coord(int(number))}/{rest}"
