"""Mask, unmask, split, remove and add nodes of a fabric; parameters follow the nodes that stay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.dtypes import encode
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_entries import param_entries
from volumetric.fabric.layer.node_latency import latencies
from volumetric.layers import LayerSpec
from volumetric.layers.node_layer import NodeEntries, node_layer_at, places_of
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore

Nodes = Iterable[int] | int


def living(network: Network, params: Mapping[str, WeightStore], *, at: str | None = None) -> Array:
    """Return the ids of the living nodes of a fabric, ascending: all nodes, unless the fabric is `dynamic`.

    Parameters
    ----------
    at : path of the fabric, ``"0.0.1.0"``; None: the only fabric of the network

    Raises
    ------
    SpecError : the network has no fabric at `at`
    """
    path, spec = node_layer_at(network.layers, at, Fabric)
    there = params[network.resolve(f"{path}/living")].values() != 0 if spec.dynamic else slice(None)
    return np.sort(spec.facts.order[there])


def mask(network: Network, params: Mapping[str, WeightStore], nodes: Nodes, *, at: str | None = None) -> Params:
    """Return parameters with nodes of a fabric masked; see `living` for `at`.

    Raises
    ------
    SpecError : the fabric or a node does not exist, or the fabric is not `dynamic`
    """
    return _set_living(network, params, nodes, at, 0)


def unmask(network: Network, params: Mapping[str, WeightStore], nodes: Nodes, *, at: str | None = None) -> Params:
    """Return parameters with nodes of a fabric unmasked; otherwise like `mask`."""
    return _set_living(network, params, nodes, at, 1)


def _set_living(network: Network, params: Mapping[str, WeightStore], nodes: Nodes, at: str | None, to: int) -> Params:
    path, spec = node_layer_at(network.layers, at, Fabric)
    if not spec.dynamic:
        raise SpecError(f"the nodes of the fabric at {path!r} cannot be masked", hint="declare it with dynamic=True")
    key = network.resolve(f"{path}/living")
    value = params[key].values().copy()
    value[places_of(spec, nodes)] = to
    return Params({**params, key: WeightStore.from_array(value)})


def split(
    network: Network, params: Mapping[str, WeightStore], node: int, into: int, *, at: str | None = None
) -> Params:
    """Return parameters with node `into` unmasked as a copy of `node`; weights that it shares do not change.

    Parameters
    ----------
    node : node to copy from
    into : node to copy to
    at : path of the fabric; None: the only fabric

    Raises
    ------
    SpecError : the fabric or a node does not exist, the fabric is not `dynamic`, or the nodes belong to different
        populations or ports
    """
    changed = unmask(network, params, [into], at=at)
    path, spec = node_layer_at(network.layers, at, Fabric)
    places_of(spec, [node])
    own = _roles(spec)
    if own[node] != own[into]:
        raise SpecError(
            f"cannot copy node {node} of {own[node]} to node {into} of {own[into]}", hint="both must have the same role"
        )

    def with_twin(_: str, entries: NodeEntries, value: Array) -> Array:
        target = entries.entries_of(np.array([into]))
        if not target.size or entries.places[entries.nodes == node].size == 0:
            return value
        twinned = np.moveaxis(value.copy(), entries.axis, 0)
        twinned[entries.indices_of(target)] = twinned[entries.indices_of(entries.places[entries.nodes == node])]
        return np.ascontiguousarray(np.moveaxis(twinned, 0, entries.axis))

    return _change_entries(
        network, changed, path, {n: e for n, e in param_entries(spec).items() if n != "living"}, with_twin
    )


def remove(
    network: Network, params: Mapping[str, WeightStore], nodes: Nodes, *, at: str | None = None
) -> tuple[Network, Params]:
    """Return a network whose fabric lacks some nodes, and the parameters of the nodes that stay.

    It computes the same as the fabric with these nodes masked, in less time and memory.

    Raises
    ------
    SpecError : the fabric or a node does not exist, a port or population would have no nodes, or an output could no
        longer depend on any input
    """
    path, spec = node_layer_at(network.layers, at, Fabric)
    gone = spec.facts.order[places_of(spec, nodes)].tolist()
    return _resize(network, params, path, spec, (*spec.without, *gone), 0)


def add(
    network: Network, params: Mapping[str, WeightStore], nodes: Nodes, *, at: str | None = None, seed: int = 0
) -> tuple[Network, Params]:
    """Return a network whose fabric has more nodes of its graph, and parameters; new nodes get initial ones.

    Parameters
    ----------
    nodes : ids from `without` of the fabric
    seed : seed of the new parameters

    Raises
    ------
    SpecError : the fabric does not exist, or a node is already in the fabric or not in its graph
    """
    path, spec = node_layer_at(network.layers, at, Fabric)
    new, there = {nodes} if isinstance(nodes, int | np.integer) else set(nodes), set(spec.without)
    for node in new:
        if node not in there:
            known = "already exists" if node in spec.facts.order else "is not in the graph"
            raise SpecError(f"node {node!r} {known}", hint=f"nodes that can be added: {list(spec.without)[:20]}")
    return _resize(network, params, path, spec, tuple(n for n in spec.without if n not in new), seed)


def _resize(
    network: Network, params: Mapping[str, WeightStore], path: str, spec: Fabric, without: tuple[int, ...], seed: int
) -> tuple[Network, Params]:
    resized = dataclasses.replace(spec, without=tuple(sorted(map(int, without))))
    late = latencies(spec)
    for name, rows in latencies(resized).items():
        if all(n is None for n in rows.values()) and any(n is not None for n in late[name].values()):
            raise SpecError(f"output {name!r} could no longer depend on any input", hint="keep nodes between them")
    width = sum(port.dim for port in resized.inputs)
    one = Network(grid=Grid(1), layers={Coord(0): resized}, input_shape=(width,), input_dtype="float32")
    fresh = initialise(one, seed)
    before = param_entries(spec)

    def follow(name: str, entries: NodeEntries, value: Array) -> Array:
        return entries.carry_over(value, before[name], fresh[f"{Coord(0)}/{name}"].values())

    where, *inside = path.split("/")
    coord = next(c for c in network.layers if str(c) == where)
    other = network.with_layer(coord, _with_child(network.layers[coord], inside, resized))
    after = param_entries(resized)
    return other, _change_entries(other, params, path, after, follow)


def _with_child(spec: LayerSpec, path: list[str], layer: Fabric) -> LayerSpec:
    """Return a layer with the layer at a path inside it replaced."""
    if not path:
        return layer
    name, *rest = path
    assert spec.children_field is not None
    inner: LayerSpec | tuple[LayerSpec, ...] = getattr(spec, spec.children_field)
    if isinstance(inner, LayerSpec):
        changed = _with_child(inner, rest, layer)
    else:
        changed = tuple(_with_child(child, rest, layer) if str(i) == name else child for i, child in enumerate(inner))
    return dataclasses.replace(spec, **{spec.children_field: changed})  # pyright: ignore[reportArgumentType]  (every registered spec is a dataclass)


def _change_entries(
    network: Network,
    params: Mapping[str, WeightStore],
    path: str,
    entries: Mapping[str, NodeEntries],
    change: Callable[[str, NodeEntries, Array], Array],
) -> Params:
    """Return parameters with those of nodes changed; each keeps its dtype scheme and its master weights."""
    stores = dict(params)
    for name, of in entries.items():
        key = network.resolve(f"{path}/{name}")
        store = params[key]
        value = change(name, of, store.master() if store.has_master else store.values())
        if store.has_master:
            stores[key] = WeightStore.from_array(value)
            stores[key].master()
            stores[key].morph(store.scheme)
        else:
            stores[key] = WeightStore.from_packed(encode(value, store.scheme))
    return Params(stores)


def _roles(spec: Fabric) -> dict[int, str]:
    """Return the port or population of each node."""
    facts = spec.facts
    cells, outputs = facts.order[facts.inputs : facts.senders_count], facts.order[facts.senders_count :]
    named = [(f"input {port.name!r}", facts.order[facts.ports[port.name]]) for port in spec.inputs]
    named += [(f"population {p.name!r}", cells[facts.populations[p.name]]) for p in spec.populations]
    named += [(f"output {port.name!r}", outputs[facts.ports[port.name]]) for port in spec.outputs]
    return {int(node): name for name, ids in named for node in ids}
