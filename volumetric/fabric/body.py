"""The body of a fabric: its graph, its input and output nodes, and its edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.fabric.layer.cell_populations import AGGREGATES, Cell
from volumetric.fabric.layer.edge_rules import RULES, LocalRadius, Rule
from volumetric.fabric.layer.node_graphs import Graph
from volumetric.fabric.layer.node_sets import Nodes, nodes_of
from volumetric.layers.field_checks import check_choice, check_text, check_whole, tuple_of


@dataclass(frozen=True, slots=True)
class Output:
    """Nodes of an output, and the reduction of their values to one row.

    It is their ``"mean"``, their concatenation (``"flatten"``), or attention by `slots` learned queries
    (``"attend"``).
    """

    nodes: Nodes
    aggregate: Literal["mean", "flatten", "attend"] = "mean"
    slots: int = 1

    def __post_init__(self) -> None:
        """Check the fields, and convert ids to a tuple."""
        object.__setattr__(self, "nodes", nodes_of("an output: nodes", self.nodes))
        check_choice("an output: aggregate", self.aggregate, AGGREGATES)
        check_whole("an output: slots", self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Nodes with cells of one kind.

    Attributes
    ----------
    cell : cell of each node, see `volumetric.fabric.cells`
    nodes : nodes of the population; None: all nodes of no port and no other population
    share : nodes that share weights: ``"none"``, ``"all"``, or ``"tile(4,4)"``
    """

    cell: Cell
    nodes: Nodes | None = None
    share: str = "none"

    def __post_init__(self) -> None:
        """Check the fields, and convert ids to a tuple."""
        if self.nodes is not None:
            object.__setattr__(self, "nodes", nodes_of("a population: nodes", self.nodes))
        if not isinstance(self.cell, Cell):
            raise SpecError(f"a population: cell is no cell, got {format_value(self.cell)}", hint="GRU(hidden=32)")
        check_text("a population: share", self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A graph with ports, edges and populations; built by `lattice2d.Graph`, `lattice3d.Graph`, `graph.Explicit`."""

    graph: Graph
    inputs: Mapping[str, Nodes]
    outputs: Mapping[str, Output]
    connectivity: tuple[Rule, ...]
    populations: Mapping[str, Population]

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.graph, Graph):
            raise SpecError(
                f"a body: graph is no graph, got {format_value(self.graph)}", hint="lattice2d.Graph makes a body"
            )
        object.__setattr__(self, "connectivity", tuple_of("connectivity", self.connectivity, RULES))
        for name, (kind, hint) in _PARTS.items():
            value = getattr(self, name)
            if not all(isinstance(one, kind) for _, one in _items(name, value)):
                raise SpecError(f"{name} of a graph must be of {kind.__name__}, got {format_value(value)}", hint=hint)
        inputs = {name: nodes_of(f"input {name!r}", nodes) for name, nodes in self.inputs.items()}
        object.__setattr__(self, "inputs", inputs)
        if not self.populations:
            raise SpecError(
                "a graph needs a population", hint='populations={"core": Population(cell=SLSTM(hidden=32))}'
            )
        for name in ("inputs", "outputs", "populations"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))


_PARTS: Mapping[str, tuple[type, str]] = {
    "inputs": (object, 'inputs={"eye": (0, 1)}'),
    "outputs": (Output, 'outputs={"hand": Output((8, 9))}'),
    "populations": (Population, 'populations={"core": Population(cell=SLSTM(hidden=32))}'),
}


def _items(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise SpecError(f"{name} of a graph must be a mapping by name, got {format_value(value)}", hint=_PARTS[name][1])
    return value.items()


def body(
    graph: Graph,
    inputs: Mapping[str, Nodes] | None,
    outputs: Mapping[str, Nodes | Output] | None,
    connectivity: Sequence[Rule] | None,
    populations: Mapping[str, Population],
) -> Body:
    """Build a body; missing ports are left empty, and `Blueprint` places them at the ends of the graph."""
    output_ports = {} if outputs is None else outputs
    return Body(
        graph=graph,
        inputs={} if inputs is None else inputs,
        outputs={
            name: out if isinstance(out, Output) else Output(out) for name, out in _items("outputs", output_ports)
        },
        connectivity=(LocalRadius(1.5),)
        if connectivity is None
        else (connectivity,)
        if isinstance(connectivity, RULES)
        else tuple(connectivity),
        populations=populations,
    )
