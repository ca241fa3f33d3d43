"""Checkpoints of a run: arrays and JSON in one ``.npz`` file, written atomically, read without executing code.

A run may be saved at any time, usually after an evaluation. No state of random generators is stored: seed, generation
and genome determine every stream.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError, VolumetricError
from volumetric.base.hints import path_hint
from volumetric.evolution.evaluate import Failure
from volumetric.evolution.evolution_config import EvolutionConfig
from volumetric.evolution.generation_run import Champion
from volumetric.evolution.genes import CONNECTION, NODE, GenomeInterface, Records
from volumetric.evolution.genome import Genome, validate
from volumetric.evolution.pool import Pool
from volumetric.evolution.species import SpeciesTable

if TYPE_CHECKING:
    import os

    from volumetric.evolution.generation_run import Run
    from volumetric.evolution.population import Population

R = TypeVar("R")

_FORMAT = "volumetric.evolution"
_VERSION = 1
_SPECIES: Final = ("ids", "founded", "improved", "best", "member")
"""Arrays of a `SpeciesTable`, each stored as ``species_…``."""
_EXTRA: Final = "extra_"
"""Prefix of the arrays of a problem."""


def _flat(records: Records, counts: NDArray[np.int64]) -> Records:
    """Return the used records without padding, because the bytes of padding differ from run to run."""
    counted = records[np.arange(records.shape[1]) < counts[:, None]]
    flat = np.zeros(len(counted), [(name, counted.dtype[name]) for name in counted.dtype.names or ()])
    for name in flat.dtype.names or ():
        flat[name] = counted[name]
    return flat


def save(population: Population, path: str | os.PathLike[str]) -> None:
    """Write `population` to `path` atomically.

    Raises
    ------
    CheckpointError : the file cannot be written
    """
    pool, champion = population.pool, population.champion
    plain = {
        "champion": champion and _plain_champion(champion),
        "hall": [_plain_champion(member) for member in population.hall],
    }
    arrays = {
        "nodes": _flat(pool.nodes, pool.sizes[:, 0]),
        "connections": _flat(pool.connections, pool.sizes[:, 1]),
        "sizes": pool.sizes,
        "counters": population.innovations.counters,
    }
    write_run(population, path, _FORMAT, _VERSION, plain, arrays)


def write_run(
    run: Run[Any, Any],
    path: str | os.PathLike[str],
    name: str,
    version: int,
    plain: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
) -> None:
    """Write the common state of a run, with a plain part and arrays, as a checkpoint of format `name`, `version`."""
    species, progress = run.species, run.progress
    about = {
        "format": name,
        "version": version,
        "seed": run.seed,
        "config": run.config.to_dict(),
        "generation": progress.generation,
        "improved": progress.improved,
        "failures": [dataclasses.asdict(failure) for failure in progress.failures],
        "threshold": species.threshold,
        "next_species": species.next_id,
        **plain,
    }
    every = {
        "plain": np.frombuffer(json.dumps(about).encode(), np.uint8),
        **arrays,
        **{f"species_{of}": getattr(species, of) for of in _SPECIES},
        **{_EXTRA + of: values for of, values in run.extras.items()},
    }
    if progress.fitness is not None:
        every["fitness"] = progress.fitness
    buffer = BytesIO()
    np.savez(buffer, allow_pickle=False, **every)
    write_atomic(path, buffer.getvalue())


def load(path: Path) -> Population:
    """Read a file of `save`.

    Raises
    ------
    CheckpointError : the file is missing, damaged, or not a checkpoint of this kind
    """
    return read_run(path, "an evolution run", _restore_population)


def read_run(path: Path, of: str, restore: Callable[[dict[str, Any], dict[str, NDArray[Any]]], R]) -> R:
    """Read a checkpoint of `of` and return `restore` of its plain part and arrays.

    Raises
    ------
    CheckpointError : the file is missing or damaged, or `restore` fails
    """
    try:
        # Read from memory, because numpy leaves the handle of an unreadable file open.
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return restore(json.loads(arrays["plain"].tobytes()), arrays)
    except VolumetricError as error:
        raise CheckpointError(f"{path} is damaged: {error}", hint=error.hint) from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}", hint=path_hint(path)) from error
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"{path} is not a checkpoint of {of}, or is damaged: {error}",
            hint="pass the checkpoint.npz of an evolution run",
        ) from error


def check_format(plain: dict[str, Any], name: str, version: int) -> None:
    """Raise `CheckpointError` unless a checkpoint has the format `name`, `version`."""
    if plain["format"] != name or plain["version"] != version:
        raise CheckpointError(f"format {plain['format']!r} {plain['version']!r} is not {name!r} {version}")


def restore_run(run: Run[Any, Any], plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Restore the state of `write_run`; raise `CheckpointError` if fitness or species do not match the genomes."""
    from volumetric.evolution.generation_run import Progress

    genomes, fitness = run.config.population, arrays.get("fitness")
    run.species = _species(plain, arrays, genomes)
    run.progress = Progress(
        generation=int(plain["generation"]),
        improved=int(plain["improved"]),
        fitness=None if fitness is None else _array(fitness, np.float64, (genomes,)),
        failures=tuple(Failure(**failure) for failure in plain["failures"]),
    )
    run.extras = {name.removeprefix(_EXTRA): values for name, values in arrays.items() if name.startswith(_EXTRA)}


def _restore_population(plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Population:
    from volumetric.evolution.population import Population

    check_format(plain, _FORMAT, _VERSION)
    config = EvolutionConfig.from_dict(plain["config"])
    population = Population(config, plain["seed"])
    population.pool = _pool(config, arrays)
    population.innovations.counters = _array(arrays["counters"], np.int64, (3,))
    population.champion = plain["champion"] and _champion(plain["champion"])
    population.hall = tuple(map(_champion, plain.get("hall", ())))
    restore_run(population, plain, arrays)
    return population


def _plain_champion(champion: Champion) -> dict[str, Any]:
    return {
        "genome": champion.genome.to_json(),
        "fitness": champion.fitness,
        "id": champion.id,
        "generation": champion.generation,
    }


def _champion(plain: dict[str, Any]) -> Champion:
    return Champion(**{**plain, "genome": Genome.from_json(plain["genome"])})


def _array(array: NDArray[Any], dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    if array.dtype != dtype or array.shape != shape:
        raise CheckpointError(f"an array is {array.dtype} {array.shape}, expected {np.dtype(dtype)} {shape}")
    return array


def _pool(config: EvolutionConfig, arrays: dict[str, NDArray[Any]]) -> Pool:
    sizes = _array(arrays["sizes"], np.int64, (config.population, 2))
    if (sizes < 0).any() or sizes.sum(axis=0).tolist() != [len(arrays["nodes"]), len(arrays["connections"])]:
        raise CheckpointError("sizes of genomes do not add up to the number of genes")
    cuts = sizes.cumsum(axis=0)[:-1]
    nodes = np.split(_records(arrays["nodes"], NODE), cuts[:, 0])
    connections = np.split(_records(arrays["connections"], CONNECTION), cuts[:, 1])
    interface: GenomeInterface = config.genome.interface
    genomes = [Genome(interface=interface, nodes=n, connections=c) for n, c in zip(nodes, connections, strict=True)]
    for genome in genomes:
        validate(genome)
    return Pool.of(genomes)


def _records(flat: NDArray[Any], dtype: np.dtype[Any]) -> Records:
    records = np.zeros(len(flat), dtype)
    for name in dtype.names or ():
        records[name] = _array(flat[name], dtype[name], flat.shape)
    return records


def _species(plain: dict[str, Any], arrays: dict[str, NDArray[Any]], genomes: int) -> SpeciesTable:
    """Return the species of a checkpoint; raise `CheckpointError` if they do not match the number of genomes."""
    ids = arrays["species_ids"]
    count = (len(ids),)
    table = SpeciesTable(
        ids=_array(ids, np.int64, count),
        founded=_array(arrays["species_founded"], np.int64, count),
        improved=_array(arrays["species_improved"], np.int64, count),
        best=_array(arrays["species_best"], np.float64, count),
        member=_array(arrays["species_member"], np.int64, (genomes,)),
        threshold=float(plain["threshold"]),
        next_id=int(plain["next_species"]),
    )
    if set(table.member.tolist()) != set(range(len(ids))):
        raise CheckpointError("members of species do not fit the species")
    return table
