"""Which layer, node of a fabric or region of a program each node of a scene stands for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion
from volumetric.clocked import Clocked
from volumetric.network import Network, Params
from volumetric.network.grid import Coord
from volumetric.observe.scene import Scene, first_nodes, parts_of, program_of, scene_of

if TYPE_CHECKING:
    from volumetric.observe.fabric_scene import FabricPart
    from volumetric.program.layer.program_layer import Program


@dataclass(frozen=True, eq=False)
class ScenePlaces:
    """A network with its weights and its scene.

    Attributes
    ----------
    edges : maximum number of edges of scenes
    """

    machine: Network | Clocked
    params: Params
    edges: int = 4000

    @cached_property
    def network(self) -> Network:
        """The network, without its clocks."""
        return self.machine.network if isinstance(self.machine, Clocked) else self.machine

    @cached_property
    def scene(self) -> Scene:
        """The scene."""
        return scene_of(self.machine, edges=self.edges)

    @cached_property
    def fabrics(self) -> dict[Coord, FabricPart]:
        """Fabrics among the layers."""
        return parts_of(self.network)

    @cached_property
    def program(self) -> Program | None:
        """The program of a network with no other layers."""
        return None if isinstance(self.machine, Clocked) else program_of(self.network)

    @cached_property
    def _coords(self) -> list[Coord]:
        if self.program is not None:
            return [next(iter(self.network.layers))] * len(self.scene.nodes)
        firsts = first_nodes(self.network, self.fabrics)
        counts = {coord: self.fabrics[coord].count if coord in self.fabrics else 1 for coord in firsts}
        return [coord for coord in firsts for _ in range(counts[coord])]

    def coord(self, node: int) -> Coord:
        """Return the layer of a node."""
        return self._coords[self.check(node)]

    def fabric(self, node: int) -> FabricPart | None:
        """Return the fabric of a node, None if the node is a layer or a region."""
        return self.fabrics.get(self.coord(node))

    def fabric_ids(self, part: FabricPart, nodes: frozenset[int]) -> list[int]:
        """Return the ids of those nodes that belong to a fabric."""
        own = [node - part.first for node in sorted(nodes) if part.first <= node < part.first + part.count]
        return part.spec.facts.order[np.array(own, np.int64)].tolist()

    def region(self, node: int) -> str:
        """Return the name of the region of a program."""
        return self.scene.nodes[self.check(node)].name

    def name(self, node: int) -> str:
        """Return the name of a node."""
        return self.scene.nodes[self.check(node)].name

    def check(self, node: int) -> int:
        """Return a node; raise `SpecError` if there is no such node."""
        count = len(self.scene.nodes)
        if isinstance(node, bool) or not isinstance(node, int) or not 0 <= node < count:
            raise SpecError(f"there is no node {node!r:.40}", hint=f"nodes are 0 … {count - 1}")
        return node

    def population(self, name: str) -> list[int]:
        """Return the nodes of a group of the scene; raise `SpecError` for an unknown one."""
        if not isinstance(name, str) or name not in self.scene.populations:
            known = list(self.scene.populations)
            shown = "populations are " + ", ".join(map(repr, known[:20]))
            raise SpecError(f"there is no population {name!r:.60}", hint=suggestion(str(name), known, shown))
        return [node.id for node in self.scene.nodes if node.group == name]
