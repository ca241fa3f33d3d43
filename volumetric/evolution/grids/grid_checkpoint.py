"""Checkpoints of grid runs: one ``.npz`` file with JSON and the packed weights, written atomically."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed, Scheme
from volumetric.evolution.generation_run import Champion
from volumetric.evolution.genome_checkpoint import check_format, read_run, restore_run, write_run
from volumetric.evolution.grids.grid_config import GridConfig
from volumetric.evolution.grids.grid_genome import GridGenome, GridPool
from volumetric.network import Network, Params, check_params
from volumetric.network.weight_store import WeightStore

if TYPE_CHECKING:
    import os

    from volumetric.evolution.grids.grid_population import GridPopulation

_FORMAT = "volumetric.evolution.grids"
_VERSION = 1
_PARTS = ("payload", "scales", "offsets")


def save(population: GridPopulation, path: str | os.PathLike[str]) -> None:
    """Write `population` to `path` atomically.

    Raises
    ------
    CheckpointError : the file cannot be written
    """
    champion = population.champion
    best = [*([] if champion is None else [champion]), *population.hall]
    genomes = [*population.pool.members, *(member.genome for member in best)]
    arrays: dict[str, NDArray[Any]] = {}
    plain = {
        "next_marking": population.innovations.next,
        "champion": champion and _plain_champion(champion),
        "hall": [_plain_champion(member) for member in population.hall],
        "genomes": [_describe_genome(genome, f"{row}", arrays) for row, genome in enumerate(genomes)],
    }
    write_run(population, path, _FORMAT, _VERSION, plain, arrays)


def _describe_genome(genome: GridGenome, name: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the plain part of a genome; add its weights to `arrays`."""
    tensors = []
    for place, (key, store) in enumerate(genome.params.items()):
        packed = store.packed()
        tensors.append([key, str(packed.scheme), list(packed.shape)])
        for part in _PARTS:
            values = getattr(packed, part)
            if values is not None:
                arrays[f"{name}_{place}_{part}"] = values if part == "payload" else values.view(np.uint8)
    return {
        "network": genome.network.to_json(),
        "markings": list(genome.markings.values()),
        "links": list(genome.link_markings),
        "tensors": tensors,
    }


def load(path: Path) -> GridPopulation:
    """Read a file of `save`.

    Raises
    ------
    CheckpointError : the file is missing, damaged, or not a checkpoint of grids
    """
    return read_run(path, "a run of grids", _restore_population)


def _restore_population(plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> GridPopulation:
    from volumetric.evolution.grids.grid_population import GridPopulation

    check_format(plain, _FORMAT, _VERSION)
    config = GridConfig.from_dict(plain["config"])
    genomes = [_genome(described, f"{row}", arrays) for row, described in enumerate(plain["genomes"])]
    best = [*filter(None, [plain["champion"]]), *plain.get("hall", ())]
    if len(genomes) != config.population + len(best):
        raise CheckpointError(f"{len(genomes)} genomes for a population of {config.population}")
    pool = GridPool(tuple(genomes[: config.population]))
    population = GridPopulation(config, pool.genome(0).network, pool.genome(0).params, plain["seed"])
    population.pool = pool
    population.innovations.next = int(plain["next_marking"])
    champions = [
        Champion(genome=genome, fitness=value, id=number, generation=generation)
        for genome, (value, number, generation) in zip(genomes[config.population :], best, strict=True)
    ]
    population.champion = champions.pop(0) if plain["champion"] else None
    population.hall = tuple(champions)
    restore_run(population, plain, arrays)
    return population


def _plain_champion(champion: Champion) -> list[Any]:
    """Return the plain data of a champion, without its genome."""
    return [champion.fitness, champion.id, champion.generation]


def _genome(described: dict[str, Any], name: str, arrays: dict[str, NDArray[Any]]) -> GridGenome:
    network = Network.from_json(described["network"])
    stores = {}
    for place, (key, scheme_text, shape) in enumerate(described["tensors"]):
        scheme = Scheme.parse(scheme_text)
        parts = {part: arrays.get(f"{name}_{place}_{part}") for part in _PARTS}
        for part in ("scales", "offsets"):
            values = parts[part]
            if values is not None and scheme.scale_dtype is not None:
                parts[part] = values.view(scheme.scale_dtype.host)
        packed = Packed(scheme=scheme, shape=tuple(shape), **parts)  # pyright: ignore[reportArgumentType]  (it checks)
        stores[key] = WeightStore.from_packed(packed)
    params = Params(stores)
    check_params(network, params)
    return GridGenome(
        network=network,
        params=params,
        markings=dict(zip(network.layers, described["markings"], strict=True)),
        link_markings=tuple(described["links"]),
    )
