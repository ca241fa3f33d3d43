"""Configuration of an evolution run: frozen values with defaults, read from TOML.

The defaults are those of Stanley and Miikkulainen, "Evolving Neural Networks through Augmenting Topologies",
Evolutionary Computation 10(2), 2002, except where small populations do better: structural mutation is more frequent,
the threshold follows a target number of species, and two champions of every species survive. The paper has no target
number, and keeps one champion in species of more than five.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

from volumetric.base import config_tables
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError
from volumetric.base.hints import path_hint, suggestion
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS, GenomeInterface

_INPUTS, _OUTPUTS, _ACTIVATION = 2, 1, "steep_sigmoid"
"""Default activation of genomes, if neither configuration nor problem sets one."""


LARGEST: Final = 1_000_000
"""Upper limits on genomes and on connections of a first genome."""


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class GenomeConfig:
    """Shape of the first genomes.

    Attributes
    ----------
    inputs, outputs : numbers of inputs and outputs; None: those of the problem, or 2 and 1 if it sets none
    recurrent : whether connections may form cycles; nodes then keep their value between steps
    steps : updates of all nodes in one activation of a recurrent genome
    initial_connections : "full" connects every input to every output, "none" nothing
    activation : of new nodes, and default of outputs; None: the problem's choice, else "steep_sigmoid"
    output_activation : of outputs; None: `activation` or, if that is also None, one that reaches the problem's targets
    aggregation : of outputs and of new nodes
    """

    inputs: int | None = None
    outputs: int | None = None
    recurrent: bool = False
    steps: int = 1
    initial_connections: Literal["full", "none"] = "full"
    activation: str | None = None
    output_activation: str | None = None
    aggregation: str = "sum"

    def __post_init__(self) -> None:
        widths = [name for name in ("inputs", "outputs") if getattr(self, name) is not None]
        _at_least("genome", self, 1, *widths, "steps")
        _at_most("genome", self, LARGEST, *widths, "steps", hint="genomes of that size do not fit into memory")
        genes = (self.inputs or 1) * (self.outputs or 1) if self.initial_connections == "full" else 0
        if genes > LARGEST:
            raise SpecError(
                f"genome: {self.inputs} inputs and {self.outputs} outputs make {genes:,} connections in every genome",
                hint='start with fewer: initial_connections = "none"',
            )
        for name in ("activation", "output_activation"):
            if getattr(self, name) is not None:
                _check_known(f"genome.{name}", (getattr(self, name),), ACTIVATIONS)
        _check_known("genome.aggregation", (self.aggregation,), AGGREGATIONS)

    @property
    def interface(self) -> GenomeInterface:
        """The interface that all genomes of the run share."""
        inputs = _INPUTS if self.inputs is None else self.inputs
        outputs = _OUTPUTS if self.outputs is None else self.outputs
        return GenomeInterface(inputs=inputs, outputs=outputs, recurrent=self.recurrent, steps=self.steps)

    @property
    def activations(self) -> tuple[str, str]:
        """Activation of new nodes, and of outputs."""
        inner = self.activation or _ACTIVATION
        return inner, self.output_activation or inner


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class MutationConfig:
    """Probabilities and sizes of mutations. Structural probabilities are per child, the others per gene of a child.

    Attributes
    ----------
    add_node, add_connection, delete_node, delete_connection : structural mutations
    weight_rate, weight_replace : probability of a perturbation, and of a new value
    weight_power : standard deviation of perturbations
    weight_mean, weight_stdev : of new values, also in the first genomes
    weight_min, weight_max : limits
    bias_… : the same for biases
    enabled_rate : probability that a connection is enabled or disabled
    activation_rate, aggregation_rate : probability that a node gets one of `activations` or `aggregations`
    """

    add_node: float = 0.05
    add_connection: float = 0.1
    delete_node: float = 0.0
    delete_connection: float = 0.0
    weight_rate: float = 0.8
    weight_replace: float = 0.1
    weight_power: float = 0.5
    weight_mean: float = 0.0
    weight_stdev: float = 1.0
    weight_min: float = -30.0
    weight_max: float = 30.0
    bias_rate: float = 0.7
    bias_replace: float = 0.1
    bias_power: float = 0.5
    bias_mean: float = 0.0
    bias_stdev: float = 1.0
    bias_min: float = -30.0
    bias_max: float = 30.0
    enabled_rate: float = 0.01
    activation_rate: float = 0.0
    activations: tuple[str, ...] = ("steep_sigmoid", "tanh", "relu", "linear")
    aggregation_rate: float = 0.0
    aggregations: tuple[str, ...] = ("sum",)

    def __post_init__(self) -> None:
        structural = ("add_node", "add_connection", "delete_node", "delete_connection")
        check_chances("mutation", self, *structural, "enabled_rate", "activation_rate", "aggregation_rate")
        for kind in ("weight", "bias"):
            check_chances("mutation", self, f"{kind}_rate", f"{kind}_replace")
            if getattr(self, f"{kind}_rate") + getattr(self, f"{kind}_replace") > 1 + 1e-9:
                raise SpecError(f"mutation.{kind}_rate and mutation.{kind}_replace must not sum to more than 1")
            _at_least("mutation", self, 0, f"{kind}_power", f"{kind}_stdev")
            if getattr(self, f"{kind}_min") > getattr(self, f"{kind}_max"):
                raise SpecError(f"mutation.{kind}_min is above mutation.{kind}_max")
        _check_known("mutation.activations", self.activations, ACTIVATIONS)
        _check_known("mutation.aggregations", self.aggregations, AGGREGATIONS)


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class SpeciesConfig:
    """Grouping of genomes into species, and extinction.

    Attributes
    ----------
    threshold : genomes closer than this to a species' representative belong to it
    target : number of species that the threshold aims at, by `threshold_step` per generation; 0 keeps the threshold
    excess, disjoint, weight : coefficients c₁, c₂, c₃ of the compatibility distance
    small_genome : below this number of connections, excess and disjoint genes are not divided by the genome's size
    max_stagnation : generations without improvement after which a species has no offspring
    elitism : number of best species that are kept however long they stagnate
    refocus_after : generations without improvement of the whole population after which only the two best species have
        offspring, once; 0 disables this
    """

    threshold: float = 3.0
    target: int = 10
    threshold_step: float = 0.2
    excess: float = 1.0
    disjoint: float = 1.0
    weight: float = 0.4
    small_genome: int = 20
    max_stagnation: int = 15
    elitism: int = 2
    refocus_after: int = 20

    def __post_init__(self) -> None:
        _at_least("species", self, 0, "target", "threshold_step", "excess", "disjoint", "weight", "small_genome")
        _at_least("species", self, 0, "refocus_after")
        _at_least("species", self, 1, "max_stagnation", "elitism")
        if self.threshold <= 0:
            raise SpecError(f"species.threshold must be above 0, got {self.threshold}")


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class ReproductionConfig:
    """Selection of parents.

    Attributes
    ----------
    elitism : number of best members of a species that survive unchanged
    elitism_from : minimum size of a species for `elitism`
    survival : share of a species, best first, that may be parents
    crossover : probability that a child has two parents
    interspecies : probability that the second parent is the best of any species
    disable : probability that a matching gene is disabled if it is disabled in either parent; otherwise it is enabled
    min_species : minimum children of a surviving species, if the population has space
    """

    elitism: int = 2
    elitism_from: int = 1
    survival: float = 0.2
    crossover: float = 0.75
    interspecies: float = 0.001
    disable: float = 0.75
    min_species: int = 2

    def __post_init__(self) -> None:
        check_chances("reproduction", self, "survival", "crossover", "interspecies", "disable")
        _at_least("reproduction", self, 0, "elitism", "elitism_from")
        _at_least("reproduction", self, 1, "min_species")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Configuration common to all kinds of genomes.

    Attributes
    ----------
    population : exact number of genomes in every generation
    fitness_criterion : "max" if higher fitness is better, "min" if lower is
    fitness_threshold : the run ends when a genome is at least this good; None: the threshold of the problem, if any
    on_failure : handling of a genome whose fitness function raises or returns a non-finite number: "worst" assigns
        `failure_fitness` or, if that is None, the worst fitness of its generation; "raise" ends the run
    hall_of_fame : number of best distinct genomes of the run to keep
    species, reproduction : sections

    Raises
    ------
    SpecError : a value is out of range
    """

    population: int = 150
    fitness_criterion: Literal["max", "min"] = "max"
    fitness_threshold: float | None = None
    on_failure: Literal["worst", "raise"] = "worst"
    failure_fitness: float | None = None
    hall_of_fame: int = 5
    species: SpeciesConfig = field(default_factory=SpeciesConfig)
    reproduction: ReproductionConfig = field(default_factory=ReproductionConfig)

    def __post_init__(self) -> None:
        _at_least("evolution", self, 2, "population")
        _at_most("evolution", self, LARGEST, "population", "hall_of_fame", hint="use some hundred genomes")
        _at_least("evolution", self, 0, "hall_of_fame")
        elitism = getattr(self.species, "elitism", 0)
        if elitism >= self.population:
            raise SpecError(
                f"species.elitism is {elitism} and the population {self.population}: all would survive unchanged",
                hint="elitism counts the best genomes of a species that survive unchanged, as elitism = 2",
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the configuration of nested plain values; missing values have their defaults.

        Raises
        ------
        SpecError : an unknown key, a value of another type, or one out of range
        """
        _refuse_endless(values)
        return config_tables.record(cls, dict(values), "", form="a table")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a TOML file.

        Raises
        ------
        SpecError : the file cannot be read, is not TOML, or is not a configuration
        """
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise SpecError(f"cannot read {path}: {error.strerror or error}", hint=path_hint(path)) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise config_tables.not_toml(Path(path), error) from error
        return cls.from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for `from_dict`."""
        return dataclasses.asdict(self)


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionConfig(RunConfig):
    """A run of genomes of nodes and connections.

    Attributes
    ----------
    genome, mutation : sections in addition to those of `RunConfig`

    Raises
    ------
    SpecError : a value is out of range
    """

    genome: GenomeConfig = field(default_factory=GenomeConfig)
    mutation: MutationConfig = field(default_factory=MutationConfig)


def _refuse_endless(values: object, where: str = "") -> None:
    """Raise `SpecError` for a non-finite number, which TOML allows."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            _refuse_endless(value, f"{where}.{name}" if where else str(name))
    elif isinstance(values, float) and not math.isfinite(values):
        raise SpecError(f"{where} must be a finite number, got {values!r}")


def check_chances(section: str, config: Any, *names: str) -> None:
    """Raise `SpecError` for fields that are not probabilities."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            value = getattr(config, name)
            raise SpecError(
                f"{section}.{name} must be a probability between 0 and 1, got {value}",
                hint=f"{value} percent are {value / 100:g}" if 1 < value <= 100 else "0 is never, 1 is always",
            )


def _at_least(section: str, config: Any, low: int, *names: str) -> None:
    config_tables.check_fields(config, section)
    for name in names:
        if not getattr(config, name) >= low:
            default = type(config).__dataclass_fields__[name].default
            hint = f"{low} or more" if default in (None, MISSING) else f"{low} or more; the default is {default}"
            raise SpecError(f"{section}.{name} must be at least {low}, got {getattr(config, name)}", hint=hint)


def _at_most(section: str, config: Any, high: int, *names: str, hint: str) -> None:
    for name in names:
        if getattr(config, name) > high:
            raise SpecError(f"{section}.{name} must be at most {high:,}, got {getattr(config, name)}", hint=hint)


def _check_known(name: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    if not values:
        raise SpecError(f"{name} is empty", hint=f"choose from {', '.join(known)}")
    for value in values:
        if value not in known:
            raise SpecError(f"{name}: unknown {value!r}", hint=suggestion(value, known))
