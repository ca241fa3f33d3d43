"""A configuration as the records that compiled kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.config import EvolutionConfig
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS, Records

_PARAMETER = ("rate", "replace", "power", "mean", "stdev", "min", "max")
_RATES = (
    "add_node", "add_connection", "delete_node", "delete_connection",
    *(f"weight_{name}" for name in _PARAMETER), *(f"bias_{name}" for name in _PARAMETER),
    "enabled_rate", "activation_rate", "aggregation_rate",
)  # fmt: skip
_SETTINGS = np.dtype(
    [(name, "f8") for name in (*_RATES, "disable_rate")]
    + [(name, "i8") for name in ("inputs", "outputs", "activation", "aggregation", "recurrent")]
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settings:
    """What the kernels need to know of a configuration.

    Attributes
    ----------
    record : one record of rates, limits and sizes
    activations, aggregations : uint8 codes that mutation chooses from
    coefficients : float64 (c₁, c₂, c₃, small genome) of the compatibility distance
    species_target, threshold_step : as in `SpeciesConfig`
    """

    record: Records
    activations: NDArray[np.uint8]
    aggregations: NDArray[np.uint8]
    coefficients: NDArray[np.float64]
    species_target: int
    threshold_step: float


@lru_cache(maxsize=16)
def settings_of(config: EvolutionConfig) -> Settings:
    """Translate `config`; the arrays are shared and must not be written."""
    record = np.zeros(1, _SETTINGS)
    for name in _RATES:
        record[name] = getattr(config.mutation, name)
    record["disable_rate"] = config.reproduction.disable
    interface = config.genome.interface
    record["inputs"], record["outputs"] = interface.inputs, interface.outputs
    record["activation"] = ACTIVATIONS.index(config.genome.activations[0])
    record["aggregation"] = AGGREGATIONS.index(config.genome.aggregation)
    record["recurrent"] = config.genome.recurrent
    species = config.species
    return Settings(
        record=record,
        activations=np.array([ACTIVATIONS.index(name) for name in config.mutation.activations], np.uint8),
        aggregations=np.array([AGGREGATIONS.index(name) for name in config.mutation.aggregations], np.uint8),
        coefficients=np.array([species.excess, species.disjoint, species.weight, species.small_genome], np.float64),
        species_target=species.target,
        threshold_step=species.threshold_step,
    )
