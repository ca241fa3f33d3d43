"""Mutation of a grid: weights, activations, kinds, toggling, layers, links. An impossible change returns None."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import VolumetricError
from volumetric.dtypes import encode
from volumetric.evolution.grids.grid_config import GridMutationConfig
from volumetric.evolution.grids.grid_genome import GridGenome, GridInnovations
from volumetric.evolution.grids.layer_factories import fitting, fresh_values, near_identity, unit
from volumetric.layers import Dense, LayerSpec, Parallel, ParamSpec, Residual, Sequential
from volumetric.network import Network, Params
from volumetric.network.grid import Coord, Link
from volumetric.network.weight_store import WeightStore


def mutate(
    genome: GridGenome, rules: GridMutationConfig, innovations: GridInnovations, rng: np.random.Generator
) -> GridGenome:
    """Return a mutated copy of `genome`; weights keep their dtypes.

    For every layer, in this order: perturb weights, change the activation, change the kind, toggle; for a program also
    add, remove and change regions, edges and clocks. Then for the whole network: add a layer, split a layer, add a
    link, remove a link. Changes that would not fit the shapes are skipped.
    """
    genome = _weights(genome, rules, rng)
    for coord in list(genome.network.layers):
        changes: tuple[tuple[float, Callable[[GridGenome], GridGenome | None]], ...] = (
            (rules.activation, lambda g, c=coord: change_activation(g, c, rules, rng)),
            (rules.kind, lambda g, c=coord: change_kind(g, c, rules, rng)),
            (rules.toggle, lambda g, c=coord: toggle(g, c)),
        )
        genome = _apply(genome, changes, rng)
        if genome.network.layers[coord].kind == "program":
            from volumetric.evolution.programs.program_mutation import mutate_program

            genome = mutate_program(genome, coord, rules, innovations, rng)
    return _apply(
        genome,
        (
            (rules.add_layer, lambda g: add_layer(g, rules, innovations, rng)),
            (rules.split_layer, lambda g: split_layer(g, rng)),
            (rules.add_link, lambda g: add_link(g, innovations, rng)),
            (rules.drop_link, lambda g: drop_link(g, rng)),
        ),
        rng,
    )


def _apply(
    genome: GridGenome,
    changes: tuple[tuple[float, Callable[[GridGenome], GridGenome | None]], ...],
    rng: np.random.Generator,
) -> GridGenome:
    """Apply each change with its probability."""
    for chance, change in changes:
        if rng.random() < chance:
            genome = change(genome) or genome
    return genome


def _weights(genome: GridGenome, rules: GridMutationConfig, rng: np.random.Generator) -> GridGenome:
    """Perturb the weights of some layers; layers that share a weight count as one."""
    chosen = {coord for coord in genome.network.layers if rng.random() < rules.layer_rate}
    stores = dict(genome.params)
    for key, spec in genome.network.param_specs().items():
        if not spec.buffer and any(key.startswith(f"{coord}/") for coord in chosen):
            changed = _perturbed(stores[key].values(), spec, rules, rng)
            stores[key] = WeightStore.from_packed(encode(changed, stores[key].scheme))
    return dataclasses.replace(genome, params=Params(stores))


def _perturbed(
    values: NDArray[np.float32], spec: ParamSpec, rules: GridMutationConfig, rng: np.random.Generator
) -> NDArray[np.float32]:
    chance = rng.random(values.shape, np.float32)
    noise = (rules.weight_power * unit(spec)) * rng.standard_normal(values.shape, np.float32)
    changed = values + np.where(chance < rules.weight_rate, noise, 0)
    anew = chance >= 1 - rules.weight_replace
    return (
        np.where(anew, fresh_values(spec, rng), changed).astype(np.float32)
        if anew.any()
        else changed.astype(np.float32)
    )


def change_kind(
    genome: GridGenome, coord: Coord, rules: GridMutationConfig, rng: np.random.Generator
) -> GridGenome | None:
    """Replace the layer at `coord` by another kind with the same shapes and fresh weights."""
    network = genome.network
    spec = network.layers[coord]
    if isinstance(spec, Residual) or spec.kind == "program" or _shares(network, coord):
        return None  # a program has its own genes
    ids = any(port.dtype == "int32" and port.coord == coord for port in network.ports.values())
    others = [
        s for s in fitting(network.reads[coord], network.shapes[coord], rules, ids=ids, rng=rng) if s.kind != spec.kind
    ]
    if not others:
        return None
    new = others[int(rng.integers(len(others)))]
    return _with_layer(genome, coord, new, {p.name: fresh_values(p, rng) for p in new.tensors()})


def change_activation(
    genome: GridGenome, coord: Coord, rules: GridMutationConfig, rng: np.random.Generator
) -> GridGenome | None:
    """Change the activation of the layer at `coord`."""
    spec = genome.network.layers[coord]
    mine = getattr(spec, "activation", None)
    others = [name for name in rules.activations if name != mine]
    if mine is None or not others:
        return None
    changed = dataclasses.replace(spec, activation=others[int(rng.integers(len(others)))])  # pyright: ignore[reportArgumentType]  (every registered spec is a dataclass)
    return with_structure(genome, layers={**genome.network.layers, coord: changed})


def toggle(genome: GridGenome, coord: Coord) -> GridGenome | None:
    """Disable the layer at `coord`, which makes it the identity, or enable it."""
    return with_structure(genome, disabled=genome.network.disabled ^ {coord})


def add_layer(
    genome: GridGenome, rules: GridMutationConfig, innovations: GridInnovations, rng: np.random.Generator
) -> GridGenome | None:
    """Insert a layer that keeps the shape into a free slot after a random layer."""
    network = genome.network
    places = list(network.layers)
    ends = [*map(network.grid.index, places[1:]), len(network.grid)]
    open_places = [i for i, end in enumerate(ends) if network.grid.index(places[i]) + 1 < end]
    if not open_places:
        return None
    at = open_places[int(rng.integers(len(open_places)))]
    before = places[at]
    shape = network.shapes[before]
    candidates = list(fitting(shape, shape, rules, ids=False, rng=rng))
    if not candidates:
        return None
    spec = _insertable(candidates[int(rng.integers(len(candidates)))])
    follower = genome.markings[places[at + 1]] if at + 1 < len(places) else -1
    marking = innovations.mark(("layer", genome.markings[before], follower, spec.kind))
    if marking in genome.markings.values():
        return None
    coord = network.grid.coord(network.grid.index(before) + 1)
    return _with_layer(genome, coord, spec, near_identity(spec, rng), marking=marking)


def split_layer(genome: GridGenome, rng: np.random.Generator) -> GridGenome | None:
    """Replace a layer by the mean of itself and a copy: the network is unchanged until the two diverge."""
    network = genome.network
    able = [
        coord
        for coord, spec in network.layers.items()
        if spec.params()
        and not isinstance(spec, Parallel | Sequential)
        and spec.kind != "program"
        and not _shares(network, coord)
    ]
    if not able:
        return None
    coord = able[int(rng.integers(len(able)))]
    spec = network.layers[coord]
    twins = Parallel(branches=(spec, spec), combine="avg")
    values = {name: genome.params[key].values() for name, key in genome.layer_keys(coord).items()}
    return _with_layer(genome, coord, twins, {f"{i}/{n}": v for i in (0, 1) for n, v in values.items()})


def add_link(genome: GridGenome, innovations: GridInnovations, rng: np.random.Generator) -> GridGenome | None:
    """Add the output of a layer to the input of a later layer of the same shape."""
    network = genome.network
    places = list(network.layers)
    linked = {(link.source, link.target) for link in network.links}
    pairs = [
        (source, target)
        for i, source in enumerate(places)
        for target in places[i + 2 :]  # the next layer already reads it
        if (source, target) not in linked and network.shapes[source] == network.reads[target]
    ]
    if not pairs:
        return None
    source, target = pairs[int(rng.integers(len(pairs)))]
    marking = innovations.mark(("link", genome.markings[source], genome.markings[target]))
    if marking in genome.link_markings:
        return None
    link = Link(kind="activation", source=source, target=target, combine="add")
    return with_structure(genome, links=(*network.links, link), link_markings=(*genome.link_markings, marking))


def drop_link(genome: GridGenome, rng: np.random.Generator) -> GridGenome | None:
    """Remove a random link that adds an activation."""
    links = genome.network.links
    able = [i for i, link in enumerate(links) if link.kind == "activation" and link.combine == "add"]
    if not able:
        return None
    gone = able[int(rng.integers(len(able)))]
    rest = [i for i in range(len(links)) if i != gone]
    return with_structure(
        genome, links=tuple(links[i] for i in rest), link_markings=tuple(genome.link_markings[i] for i in rest)
    )


def _insertable(spec: LayerSpec) -> LayerSpec:
    """Return a form of `spec` that can be initialised close to the identity."""
    if isinstance(spec, Dense):
        return dataclasses.replace(spec, activation="linear")
    if isinstance(spec, Sequential) or not spec.params():
        return spec
    return Sequential(layers=(spec, Residual(source="input")))


def _shares(network: Network, coord: Coord) -> bool:
    """Whether a shared link has an end at `coord`."""
    return any(link.kind == "shared" and coord in (link.source, link.target) for link in network.links)


def _with_layer(
    genome: GridGenome,
    coord: Coord,
    spec: LayerSpec,
    values: Mapping[str, NDArray[np.float32]],
    *,
    marking: int | None = None,
) -> GridGenome | None:
    """Put `spec` with its weights at `coord`, with the marking of the replaced layer unless a new one is passed."""
    start = f"{coord}/"
    params = {key: store for key, store in genome.params.items() if not key.startswith(start)}
    params |= {start + name: WeightStore.from_array(value) for name, value in values.items()}
    markings = genome.markings if marking is None else {**genome.markings, coord: marking}
    return with_structure(genome, layers={**genome.network.layers, coord: spec}, params=params, markings=markings)


def with_structure(
    genome: GridGenome,
    *,
    params: Mapping[str, WeightStore] | None = None,
    markings: Mapping[Coord, int] | None = None,
    link_markings: tuple[int, ...] | None = None,
    **structure: object,
) -> GridGenome | None:
    """Return the genome with another structure; None if that is not a valid network or changes the outputs."""
    try:
        network = dataclasses.replace(genome.network, **structure)  # pyright: ignore[reportArgumentType]  (fields of Network)
    except VolumetricError:
        return None
    before, now = ({name: n.shapes[coord] for name, coord in n.taps.items()} for n in (genome.network, network))
    if before != now:
        return None
    stores = genome.params if params is None else params
    return dataclasses.replace(
        genome,
        network=network,
        params=Params({key: stores[key] for key in network.param_specs()}),
        markings=genome.markings if markings is None else markings,
        link_markings=genome.link_markings if link_markings is None else link_markings,
    )
