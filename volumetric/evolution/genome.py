"""One genome: node and connection genes, validated, immutable, with JSON form."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.base.atomic import write_atomic
from volumetric.base.call_errors import explain_assignment_errors
from volumetric.base.errors import SpecError
from volumetric.base.hints import path_hint
from volumetric.base.notebook_html import drawn_bundle
from volumetric.base.scope_pages import ScopePage, page_of
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS, CONNECTION, NODE, GenomeInterface, Records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from volumetric.evolution.pool import Pool
    from volumetric.network import Network
    from volumetric.network.weight_store import Params, WeightStore


FORMAT, _VERSION = "volumetric.genome", 1
_Small = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class _NodeGene(msgspec.Struct, forbid_unknown_fields=True):
    """A node gene in JSON."""

    id: _Small
    bias: float
    activation: str
    aggregation: str


class _ConnectionGene(msgspec.Struct, forbid_unknown_fields=True):
    """A connection gene in JSON, with the fields of `CONNECTION`."""

    innovation: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    source: _Small
    target: _Small
    weight: float
    enabled: bool


class _GenomeFile(msgspec.Struct, forbid_unknown_fields=True):
    """A genome in JSON."""

    format: str
    version: int
    inputs: _Small
    outputs: _Small
    recurrent: bool
    steps: _Small
    nodes: list[_NodeGene]
    connections: list[_ConnectionGene]


@partial(
    explain_assignment_errors,
    hints={"fitness": "return the fitness from the fitness function: def fitness(genome): return …"},
)
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Genome:
    """A network's genes.

    Attributes
    ----------
    interface : inputs, outputs, and whether it is recurrent
    nodes : `NODE` records sorted by id; the outputs come first
    connections : `CONNECTION` records sorted by innovation number

    Genomes are equal if all their genes are. The arrays are read-only.
    """

    interface: GenomeInterface
    nodes: Records
    connections: Records

    _home: tuple[Pool, int] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.nodes.setflags(write=False)
        self.connections.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Genome)
            and self.interface == other.interface
            and _same(self.connections, other.connections)
            and _same(self.nodes, other.nodes)
        )

    def __hash__(self) -> int:
        return hash((self.interface, self.connections["weight"].tobytes(), self.nodes["bias"].tobytes()))

    def __repr__(self) -> str:
        kind = "recurrent" if self.interface.recurrent else "feed-forward"
        enabled = int(self.connections["enabled"].sum())
        return (
            f"<Genome {kind}, {self.interface.inputs} inputs, {self.interface.outputs} outputs, {self.hidden} hidden, "
            f"{enabled} of {len(self.connections)} connections enabled>"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the drawing of the genome for notebooks, beside its text."""
        return drawn_bundle("genome", self)

    @property
    def hidden(self) -> int:
        """Number of hidden nodes."""
        return len(self.nodes) - self.interface.outputs

    def activate(self, inputs: Array | Sequence[Any]) -> NDArray[np.float64]:
        """Return the outputs, float64 [samples, outputs] for inputs [samples, inputs], or [outputs] for [inputs].

        A batch of samples takes little more time than one sample. A recurrent genome starts from zero; use
        `Activator` to keep its state between calls.

        Raises
        ------
        ShapeError : the last axis does not match the genome's inputs
        """
        pool, row = self._home or self.home
        return pool.links.activate_one(row, inputs)

    @property
    def home(self) -> tuple[Pool, int]:
        """The pool whose links activate this genome, and its row there; a cohort shares one pool."""
        if self._home is None:
            from volumetric.evolution.pool import Pool

            object.__setattr__(self, "_home", (Pool.of([self]), 0))
        assert self._home is not None
        return self._home

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without links."""
        return _genome, (self.interface, self.nodes, self.connections)

    def to_network(self) -> tuple[Network, Params]:
        """Return a network of dense layers, one for each depth, that computes the same in float32.

        Layers in between copy values that skip layers. ``volumetric.loaders.native_checkpoint.save_native`` writes the
        network.

        Raises
        ------
        UnsupportedError : the genome is recurrent, or no layer has one of its activations or aggregations
        """
        from volumetric.evolution.as_network import to_network

        return to_network(self)

    @staticmethod
    def from_network(network: Network, params: Mapping[str, WeightStore]) -> Genome:
        """Return the genome of a chain of dense layers, or of a network of `to_network`; weights of 0 are dropped.

        Raises
        ------
        UnsupportedError : the network is not a chain of dense layers, or has an activation that nodes do not have
        """
        from volumetric.evolution.as_network import from_network

        return from_network(network, params)

    def to_json(self) -> str:
        """Return the genome as JSON text; numbers are exact."""
        common = self.interface
        nodes = [
            _NodeGene(id, bias, ACTIVATIONS[activation], AGGREGATIONS[aggregation])
            for id, activation, aggregation, bias in self.nodes.tolist()
        ]
        connections = [_ConnectionGene(*gene) for gene in self.connections.tolist()]
        sizes = common.inputs, common.outputs, common.recurrent, common.steps
        return json.dumps(msgspec.to_builtins(_GenomeFile(FORMAT, _VERSION, *sizes, nodes, connections)), indent=1)

    @staticmethod
    def from_json(text: str | bytes) -> Genome:
        """Read JSON text of `to_json`.

        Raises
        ------
        SpecError : the text is not JSON, or not a valid genome
        """
        try:
            file = msgspec.json.decode(text, type=_GenomeFile)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise SpecError(
                f"not a genome in JSON: {error}", hint="pass a file of genome.save, or the champion.json of a run"
            ) from error
        if (file.format, file.version) != (FORMAT, _VERSION):
            raise SpecError(f"not a genome of format {FORMAT} {_VERSION}: {file.format!r} {file.version!r}")
        nodes = [
            (node.id, _code(node.activation, ACTIVATIONS), _code(node.aggregation, AGGREGATIONS), node.bias)
            for node in file.nodes
        ]
        genome = Genome(
            interface=GenomeInterface(
                inputs=file.inputs, outputs=file.outputs, recurrent=file.recurrent, steps=file.steps
            ),
            nodes=np.array(nodes, NODE),
            connections=np.array([msgspec.structs.astuple(gene) for gene in file.connections], CONNECTION),
        )
        validate(genome)
        return genome

    def scope(self) -> ScopePage:
        """Return a page of the nodes and connections in space."""
        return page_of("genome", self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the genome as JSON; an existing file is replaced atomically."""
        write_atomic(path, self.to_json().encode())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Genome:
        """Read a file of `save`.

        Raises
        ------
        SpecError : the file cannot be read, or is not a valid genome
        """
        try:
            return Genome.from_json(Path(path).read_bytes())
        except OSError as error:
            raise SpecError(f"cannot read {path}: {error.strerror or error}", hint=path_hint(path)) from error


def _genome(interface: GenomeInterface, nodes: Records, connections: Records) -> Genome:
    return Genome(interface=interface, nodes=nodes, connections=connections)


def _same(a: Records, b: Records) -> bool:
    """Whether records are equal; field by field, in a fifth of the time of NumPy's comparison of records."""
    return len(a) == len(b) and all(bool((a[name] == b[name]).all()) for name in reversed(a.dtype.names or ()))


def _code(name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise SpecError(f"unknown {name!r}", hint=f"known: {', '.join(names)}")
    return names.index(name)


def validate(genome: Genome) -> None:
    """Check every invariant that kernels rely on.

    Raises
    ------
    SpecError : ids or innovations are out of order or repeated, an end does not exist, a connection leads into an
        input, two connections join the same nodes, a number is not finite, a code is unknown, or a feed-forward genome
        has a cycle
    """
    interface, nodes, connections = genome.interface, genome.nodes, genome.connections
    if min(interface.inputs, interface.outputs, interface.steps) < 1:
        raise SpecError("a genome needs at least one input, one output and one step")
    inputs, fixed = interface.inputs, interface.inputs + interface.outputs
    if nodes["id"][: interface.outputs].tolist() != list(range(inputs, fixed)):
        raise SpecError(f"the first nodes must be the outputs {inputs} to {fixed - 1}")
    if (np.diff(nodes["id"]) <= 0).any():
        raise SpecError("node ids must increase")
    if (np.diff(connections["innovation"]) <= 0).any() or (connections["innovation"] < 0).any():
        raise SpecError("innovation numbers must increase from 0 or more")
    if not np.isfinite(nodes["bias"]).all() or not np.isfinite(connections["weight"]).all():
        raise SpecError("weights and biases must be finite")
    if (nodes["activation"] >= len(ACTIVATIONS)).any() or (nodes["aggregation"] >= len(AGGREGATIONS)).any():
        raise SpecError("unknown activation or aggregation code")
    known = set(nodes["id"].tolist())
    ends = list(zip(connections["source"].tolist(), connections["target"].tolist(), strict=True))
    for source, target in ends:
        if target not in known or not (0 <= source < inputs or source in known):
            raise SpecError(f"connection {source} → {target} has an end that is not a node, or leads into an input")
    if len(set(ends)) < len(ends):
        raise SpecError("two connections join the same nodes")
    if not interface.recurrent:
        topological_order(genome, disabled=True)


def topological_order(genome: Genome, *, disabled: bool = False) -> list[int]:
    """Return positions of the nodes, each after all nodes that feed it.

    Parameters
    ----------
    disabled : follow disabled connections as well

    Raises
    ------
    SpecError : connections form a cycle
    """
    place = {node: position for position, node in enumerate(genome.nodes["id"].tolist())}
    followers: list[list[int]] = [[] for _ in place]
    waiting = [0] * len(place)
    for gene in genome.connections:
        if gene["source"] in place and (disabled or gene["enabled"]):
            followers[place[gene["source"]]].append(place[gene["target"]])
            waiting[place[gene["target"]]] += 1
    order = [position for position, count in enumerate(waiting) if count == 0]
    for position in order:
        for follower in followers[position]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                order.append(follower)
    if len(order) < len(place):
        raise SpecError("connections of a feed-forward genome form a cycle", hint="set recurrent to allow cycles")
    return order
