"""The body of a fabric: its graph, which nodes take rows in and hand them out, and who reads whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from volumetric.errors import SpecError
from volumetric.layers.fabric.declared import Cell
from volumetric.layers.fabric.edges import LocalRadius, Rule
from volumetric.layers.fabric.graphs import Graph
from volumetric.layers.fabric.places import Nodes


@dataclass(frozen=True, slots=True)
class Output:
    """Nodes of an output, and how what they read becomes one row.

    That is their ``"mean"``, all of them side by side (``"flatten"``), or what `slots` learned queries find
    (``"attend"``).
    """

    nodes: Nodes
    aggregate: Literal["mean", "flatten", "attend"] = "mean"
    slots: int = 1


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
        if not self.populations:
            raise SpecError(
                "a graph needs a population", hint='populations={"core": Population(cell=SLSTM(hidden=32))}'
            )
        for name in ("inputs", "outputs", "populations"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))


def body(
    graph: Graph,
    inputs: Mapping[str, Nodes] | None,
    outputs: Mapping[str, Nodes | Output] | None,
    connectivity: Sequence[Rule] | None,
    populations: Mapping[str, Population],
) -> Body:
    """Put a body together; without ports they are left open, for `Blueprint` to give them the graph's ends."""
    given = {} if outputs is None else outputs
    return Body(
        graph=graph,
        inputs={name: _nodes(nodes) for name, nodes in (inputs or {}).items()},
        outputs={name: out if isinstance(out, Output) else Output(_nodes(out)) for name, out in given.items()},
        connectivity=(LocalRadius(1.5),) if connectivity is None else tuple(connectivity),
        populations=populations,
    )


def _nodes(nodes: Nodes | Sequence[int]) -> Nodes:
    return tuple(nodes) if isinstance(nodes, range | list) else nodes  # pyright: ignore[reportReturnType]  (a list holds ids)
