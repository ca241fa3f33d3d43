"""Blueprint: the declaration of a fabric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.fabric.body import Body
from volumetric.fabric.body import Output as Handed
from volumetric.fabric.layer.cell_populations import CellPopulation, InPort, OutPort
from volumetric.fabric.layer.node_facts import FabricDeclaration, FabricFacts, facts_of
from volumetric.fabric.layer.node_graphs import Lattice
from volumetric.fabric.layer.node_sets import XBand
from volumetric.layers.field_checks import check_flag, check_whole, whole_numbers

N = TypeVar("N")


@dataclass(frozen=True, slots=True)
class Interface:
    """Widths of the values that cells send to their neighbours, and of the messages that they receive."""

    public: int = 32
    message: int = 32

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("Interface: public", self.public)
        check_whole("Interface: message", self.message)


@dataclass(frozen=True, slots=True)
class Input:
    """An input: rows of `dim` numbers."""

    dim: int

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("Input: dim", self.dim)


@dataclass(frozen=True, slots=True)
class Output:
    """An output: rows of `dim` numbers."""

    dim: int

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("Output: dim", self.dim)


@dataclass(frozen=True, slots=True)
class ReceiverSlot:
    """The query of a receiver is its learned slot, which is constant over time."""


@dataclass(frozen=True, slots=True)
class ReceiverState:
    """The query of a receiver is the last public output of its cell."""


Query: TypeAlias = ReceiverSlot | ReceiverState


@dataclass(frozen=True, slots=True)
class BySenderTile:
    """Senders in one tile of a lattice share one matrix of keys and values."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        """Convert sides to a tuple."""
        object.__setattr__(self, "shape", whole_numbers("BySenderTile: shape", self.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class DotProduct:
    """Messages by attention over the senders of a node: the softmax of ``q·k / √d - λ · distance``, times values.

    Attributes
    ----------
    head_dim : width d of queries and keys
    heads : number of heads, each with its own λ
    value_dim : width of the values of a head; None: as `head_dim`
    query : query of a receiver
    share : senders that share a matrix of keys and values; None: tiles of a quarter of each side, or all without a
        lattice
    learn_distance : λ is learned; if false, it stays at 0.5
    """

    head_dim: int = 32
    heads: int = 1
    value_dim: int | None = None
    query: Query = field(default_factory=ReceiverSlot)
    share: BySenderTile | None = None
    learn_distance: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("DotProduct: head_dim", self.head_dim)
        check_whole("DotProduct: heads", self.heads)
        if self.value_dim is not None:
            check_whole("DotProduct: value_dim", self.value_dim)
        if not isinstance(self.query, Query):
            raise SpecError(f"DotProduct: query is no query, got {format_value(self.query)}", hint="ReceiverSlot()")
        if not isinstance(self.share, BySenderTile | None):
            raise SpecError(
                f"DotProduct: share is no tile, got {format_value(self.share)}", hint="BySenderTile((4, 4))"
            )
        check_flag("DotProduct: learn_distance", self.learn_distance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """The declaration of a fabric.

    Attributes
    ----------
    graph : nodes, edges and populations
    inputs, outputs : name → width of its rows; the graph has the same names
    interface : widths inside the fabric
    message : how a node combines the values that it reads
    inner_steps : number of message exchanges per row
    dynamic : nodes can be masked and unmasked at run time
    without : ids of nodes of the graph that do not exist

    Raises
    ------
    SpecError : port names do not match the graph, or cells have different widths
    """

    graph: Body
    inputs: Mapping[str, Input]
    outputs: Mapping[str, Output]
    interface: Interface = field(default_factory=Interface)
    message: DotProduct = field(default_factory=DotProduct)
    inner_steps: int = 1
    dynamic: bool = False
    without: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("Blueprint: inner_steps", self.inner_steps)
        check_flag("Blueprint: dynamic", self.dynamic)
        for name, kind in (("graph", Body), ("interface", Interface), ("message", DotProduct)):
            if not isinstance(getattr(self, name), kind):
                raise SpecError(f"Blueprint: {name} is no {kind.__name__}, got {format_value(getattr(self, name))}")
        object.__setattr__(self, "without", whole_numbers("Blueprint: without", self.without))
        for name, kind in (("inputs", Input), ("outputs", Output)):
            ports = getattr(self, name)
            if not isinstance(ports, Mapping) or not all(isinstance(port, kind) for port in ports.values()):
                hint = f'{name}={{"name": {kind.__name__}(128)}}'
                raise SpecError(f"Blueprint: {name} must be widths by name, got {format_value(ports)}", hint=hint)
            object.__setattr__(self, name, MappingProxyType(dict(ports)))
        widths = {name: p.cell.hidden for name, p in self.graph.populations.items()}
        if len(set(widths.values())) > 1:
            listed = ", ".join(f"{name}: {width}" for name, width in widths.items())
            raise SpecError(f"cells have different hidden widths: {listed}", hint="all cells need one hidden width")

    @property
    def declared(self) -> FabricDeclaration:
        """Names, nodes and edges, from which facts are computed."""
        body = self.graph
        nodes = _port_nodes("input", self.inputs, body.inputs, body, XBand("low"))
        handed = _port_nodes("output", self.outputs, body.outputs, body, Handed(XBand("high")))
        share = self.message.share
        return FabricDeclaration(
            graph=body.graph,
            connectivity=body.connectivity,
            inputs=tuple(InPort(name, at, self.inputs[name].dim) for name, at in nodes.items()),
            outputs=tuple(
                OutPort(name, out.nodes, self.outputs[name].dim, out.aggregate, out.slots)
                for name, out in handed.items()
            ),
            populations=tuple(CellPopulation(name, p.cell, p.nodes, p.share) for name, p in body.populations.items()),
            kv_tile=None if share is None else share.shape,
            without=self.without,
        )

    @property
    def facts(self) -> FabricFacts:
        """Nodes and edges as arrays."""
        return facts_of(self.declared)


def _port_nodes(
    what: str, ports: Mapping[str, Input] | Mapping[str, Output], nodes: Mapping[str, N], body: Body, end: N
) -> Mapping[str, N]:
    """Return the nodes of each port, in the order of the ports."""
    if not ports:
        raise SpecError(f"a blueprint needs an {what}", hint=f'{what}s={{"name": {what.title()}(128)}}')
    if not nodes and len(ports) == 1 and isinstance(body.graph, Lattice):
        return dict.fromkeys(ports, end)
    missing, unknown = [n for n in ports if n not in nodes], [n for n in nodes if n not in ports]
    if missing or unknown:
        name = (missing or unknown)[0]
        where = "no nodes in the graph" if missing else "nodes in the graph, but no width in the blueprint"
        raise SpecError(f"{what} {name!r} has {where}", hint=f"use the same {what} names in both")
    return {name: nodes[name] for name in ports}
