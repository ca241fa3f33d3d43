"""Nodes of a fabric that are masked, woken, split, taken out and put in: parameters follow the nodes that stay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.dtypes import encode
from volumetric.fabric.layer.nodes import param_entries
from volumetric.fabric.layer.reach import latencies
from volumetric.fabric.layer.spec import Fabric
from volumetric.layers import LayerSpec
from volumetric.layers.nodes import Entries, node_layer_at, places_of
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weights import Params, WeightStore

Nodes = Iterable[int] | int


def living(network: Network, params: Mapping[str, WeightStore], *, at: str | None = None) -> Array:
    """Return the ids of the nodes of a fabric that live, rising: all that there are, unless it is `dynamic`.

    Parameters
    ----------
    at : path of the fabric, ``"0.0.1.0"``; None: the only one of the network

    Raises
    ------
    SpecError : there is no such fabric
    """
    path, spec = node_layer_at(network.layers, at, Fabric)
    there = params[network.resolve(f"{path}/living")].values() != 0 if spec.dynamic else slice(None)
    return np.sort(spec.facts.order[there])


def mask(network: Network, params: Mapping[str, WeightStore], nodes: Nodes, *, at: str | None = None) -> Params:
    """Return parameters with which nodes of a fabric are silent; see `living` for `at`.

    Raises
    ------
    SpecError : there is no such fabric or node, or the fabric is not `dynamic`
    """
    return _marked(network, params, nodes, at, 0)


def unmask(network: Network, params: Mapping[str, WeightStore], nodes: Nodes, *, at: str | None = None) -> Params:
    """Return parameters with which nodes of a fabric live; else as `mask`."""
    return _marked(network, params, nodes, at, 1)


def _marked(network: Network, params: Mapping[str, WeightStore], nodes: Nodes, at: str | None, to: int) -> Params:
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
    """Return parameters with which a node lives that has those of another; what it shares with others stays.

    Parameters
    ----------
    node : which has the parameters
    into : which gets them
    at : path of the fabric; None: the only one

    Raises
    ------
    SpecError : there is no such fabric or node, it is not `dynamic`, or the nodes are of two populations or ports
    """
    changed = unmask(network, params, [into], at=at)
    path, spec = node_layer_at(network.layers, at, Fabric)
    places_of(spec, [node])
    own = _roles(spec)
    if own[node] != own[into]:
        raise SpecError(f"node {node} is of {own[node]}, node {into} of {own[into]}", hint="split within one of them")

    def with_twin(_: str, entries: Entries, value: Array) -> Array:
        target = entries.only(np.array([into]))
        if not target.size or entries.places[entries.nodes == node].size == 0:
            return value
        twinned = np.moveaxis(value.copy(), entries.axis, 0)
        twinned[entries.of(target)] = twinned[entries.of(entries.places[entries.nodes == node])]
        return np.ascontiguousarray(np.moveaxis(twinned, 0, entries.axis))

    return _changed(network, changed, path, {n: e for n, e in param_entries(spec).items() if n != "living"}, with_twin)


def remove(
    network: Network, params: Mapping[str, WeightStore], nodes: Nodes, *, at: str | None = None
) -> tuple[Network, Params]:
    """Return a network whose fabric does not have some nodes, and the parameters of those that stay.

    It computes what the fabric does with these nodes masked, in less time and memory.

    Raises
    ------
    SpecError : there is no such fabric or node, nothing would be left of a port or population, or an output could
        depend on no input any more
    """
    path, spec = node_layer_at(network.layers, at, Fabric)
    gone = spec.facts.order[places_of(spec, nodes)].tolist()
    return _resized(network, params, path, spec, (*spec.without, *gone), 0)


def add(
    network: Network, params: Mapping[str, WeightStore], nodes: Nodes, *, at: str | None = None, seed: int = 0
) -> tuple[Network, Params]:
    """Return a network whose fabric has some more of the nodes of its graph, and parameters, fresh ones for these.

    Parameters
    ----------
    nodes : ids, of those that the fabric is `without`
    seed : of the fresh parameters

    Raises
    ------
    SpecError : there is no such fabric, or it has a node already, or its graph does not have it
    """
    path, spec = node_layer_at(network.layers, at, Fabric)
    new, there = {nodes} if isinstance(nodes, int | np.integer) else set(nodes), set(spec.without)
    for node in new:
        if node not in there:
            known = "is there" if node in spec.facts.order else "is none of the graph"
            raise SpecError(f"node {node!r} {known}", hint=f"nodes that can be added: {list(spec.without)[:20]}")
    return _resized(network, params, path, spec, tuple(n for n in spec.without if n not in new), seed)


def _resized(
    network: Network, params: Mapping[str, WeightStore], path: str, spec: Fabric, without: tuple[int, ...], seed: int
) -> tuple[Network, Params]:
    resized = dataclasses.replace(spec, without=tuple(sorted(map(int, without))))
    late = latencies(spec)
    for name, rows in latencies(resized).items():
        if all(n is None for n in rows.values()) and any(n is not None for n in late[name].values()):
            raise SpecError(f"output {name!r} could depend on no input any more", hint="keep nodes between them")
    width = sum(port.dim for port in resized.inputs)
    one = Network(grid=Grid(1), layers={Coord(0): resized}, input_shape=(width,), input_dtype="float32")
    fresh = initialise(one, seed)
    before = param_entries(spec)

    def follow(name: str, entries: Entries, value: Array) -> Array:
        return entries.followed(value, before[name], fresh[f"{Coord(0)}/{name}"].values())

    where, *inside = path.split("/")
    coord = next(c for c in network.layers if str(c) == where)
    other = network.with_layer(coord, _with_child(network.layers[coord], inside, resized))
    after = param_entries(resized)
    return other, _changed(other, params, path, after, follow)


def _with_child(spec: LayerSpec, path: list[str], layer: Fabric) -> LayerSpec:
    """Return a layer with another one at a path inside of it."""
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


def _changed(
    network: Network,
    params: Mapping[str, WeightStore],
    path: str,
    entries: Mapping[str, Entries],
    change: Callable[[str, Entries, Array], Array],
) -> Params:
    """Return parameters, of which those that belong to nodes are changed; each keeps its scheme, and its master."""
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
