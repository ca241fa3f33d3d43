"""Mutation of a grid: weights, activations, kinds, toggling, layers and links."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from volumetric.dtypes import encode
from volumetric.evolution.grids import structure
from volumetric.evolution.grids.config import GridMutationConfig
from volumetric.evolution.grids.genome import GridGenome, GridInnovations
from volumetric.evolution.grids.makers import fresh, unit
from volumetric.layers import ParamSpec
from volumetric.network import Params
from volumetric.weights import WeightStore


def mutate(
    genome: GridGenome, rules: GridMutationConfig, innovations: GridInnovations, rng: np.random.Generator
) -> GridGenome:
    """Return a changed copy of `genome`; weights keep their numeric types.

    Every layer may have its weights perturbed, get another activation, another kind, or be toggled, in this order; of a
    program regions, edges and clocks come, go and change. Then the network as a whole may gain a layer, split one, gain
    a link and lose one. A change that would not fit the shapes does not happen.
    """
    genome = _weights(genome, rules, rng)
    for coord in list(genome.network.layers):
        changes: tuple[tuple[float, Callable[[GridGenome], GridGenome | None]], ...] = (
            (rules.activation, lambda g, c=coord: structure.change_activation(g, c, rules, rng)),
            (rules.kind, lambda g, c=coord: structure.change_kind(g, c, rules, rng)),
            (rules.toggle, lambda g, c=coord: structure.toggle(g, c)),
        )
        genome = _apply(genome, changes, rng)
        if genome.network.layers[coord].kind == "program":
            from volumetric.evolution.programs.mutate import mutate_program

            genome = mutate_program(genome, coord, rules, innovations, rng)
    return _apply(
        genome,
        (
            (rules.add_layer, lambda g: structure.add_layer(g, rules, innovations, rng)),
            (rules.split_layer, lambda g: structure.split_layer(g, rng)),
            (rules.add_link, lambda g: structure.add_link(g, innovations, rng)),
            (rules.drop_link, lambda g: structure.drop_link(g, rng)),
        ),
        rng,
    )


def _apply(
    genome: GridGenome,
    changes: tuple[tuple[float, Callable[[GridGenome], GridGenome | None]], ...],
    rng: np.random.Generator,
) -> GridGenome:
    """Let each change happen by its chance."""
    for chance, change in changes:
        if rng.random() < chance:
            genome = change(genome) or genome
    return genome


def _weights(genome: GridGenome, rules: GridMutationConfig, rng: np.random.Generator) -> GridGenome:
    """Perturb the weights of some layers, all layers that share a weight being one."""
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
    return np.where(anew, fresh(spec, rng), changed).astype(np.float32) if anew.any() else changed.astype(np.float32)
