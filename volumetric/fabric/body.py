"""The body of a fabric: its graph, which nodes take rows in and hand them out, and who reads whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from volumetric.base.errors import SpecError
from volumetric.base.hints import shown
from volumetric.fabric.layer.declared import AGGREGATES, Cell
from volumetric.fabric.layer.edges import RULES, LocalRadius, Rule
from volumetric.fabric.layer.graphs import Graph
from volumetric.fabric.layer.places import Nodes, nodes_of
from volumetric.layers.checks import check_choice, check_text, check_whole, tuple_of


@dataclass(frozen=True, slots=True)
class Output:
    """Nodes of an output, and how what they read becomes one row.

    That is their ``"mean"``, all of them side by side (``"flatten"``), or what `slots` learned queries find
    (``"attend"``).
    """

    nodes: Nodes
    aggregate: Literal["mean", "flatten", "attend"] = "mean"
    slots: int = 1

    def __post_init__(self) -> None:
        """Take ids in any list."""
        object.__setattr__(self, "nodes", nodes_of("an output: nodes", self.nodes))
        check_choice("an output: aggregate", self.aggregate, AGGREGATES)
        check_whole("an output: slots", self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Nodes whose cells are alike.

    Attributes
    ----------
    cell : what each node is, of `volumetric.fabric.cells`
    nodes : which; None: all that no port and no other population names
    share : whose weights are one: ``"none"``, ``"all"``, or ``"tile(4,4)"``
    """

    cell: Cell
    nodes: Nodes | None = None
    share: str = "none"

    def __post_init__(self) -> None:
        """Take ids in any list."""
        if self.nodes is not None:
            object.__setattr__(self, "nodes", nodes_of("a population: nodes", self.nodes))
        if not isinstance(self.cell, Cell):
            raise SpecError(f"a population: cell is no cell, got {shown(self.cell)}", hint="GRU(hidden=32)")
        check_text("a population: share", self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A graph with its roles; `lattice2d.Graph`, `lattice3d.Graph` and `graph.Explicit` make one."""

    graph: Graph
    inputs: Mapping[str, Nodes]
    outputs: Mapping[str, Output]
    connectivity: tuple[Rule, ...]
    populations: Mapping[str, Population]

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.graph, Graph):
            raise SpecError(f"a body: graph is no graph, got {shown(self.graph)}", hint="lattice2d.Graph makes a body")
        object.__setattr__(self, "connectivity", tuple_of("connectivity", self.connectivity, RULES))
        for name, (kind, hint) in _PARTS.items():
            value = getattr(self, name)
            if not all(isinstance(one, kind) for _, one in _items(name, value)):
                raise SpecError(f"{name} of a graph are of {kind.__name__}, got {shown(value)}", hint=hint)
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
        raise SpecError(f"{name} of a graph are by name, got {shown(value)}", hint=_PARTS[name][1])
    return value.items()


def body(
    graph: Graph,
    inputs: Mapping[str, Nodes] | None,
    outputs: Mapping[str, Nodes | Output] | None,
    connectivity: Sequence[Rule] | None,
    populations: Mapping[str, Population],
) -> Body:
    """Put a body together; without ports they are left open, for `Blueprint` to give them the graph's ends."""
    output_ports = {} if outputs is None else outputs
    return Body(
        graph=graph,
        inputs={} if inputs is None else inputs,
        outputs={
            name: out if isinstance(out, Output) else Output(out) for name, out in _items("outputs", output_ports)
        },
        connectivity=(LocalRadius(1.5),) if connectivity is None else tuple(connectivity),
        populations=populations,
    )
