"""Networks as diagrams: genomes by nodes and connections, grids by layers, with the contents of containers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from volumetric.base.errors import SpecError
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS
from volumetric.evolution.genome import Genome
from volumetric.evolution.node_columns import node_columns
from volumetric.layers import LayerSpec, Parallel, Residual, Sequential
from volumetric.layers.containers import inner_source
from volumetric.network import INPUT, OUTPUT, Network
from volumetric.network.grid import Coord
from volumetric.viz.diagram import Diagram, DiagramBox, DiagramFrame, DiagramLine
from volumetric.viz.slabs import draw_slabs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from volumetric.network.wiring import Source

_INPUT = "input"
_CHAIN, _CHILDREN = 16, 12
"""Maximum number of layers of a chain, and of children of a container, to draw one by one."""


def draw_genome(
    genome: Genome, title: str = "champion", *, inputs: Sequence[str] = (), outputs: Sequence[str] = ()
) -> Figure:
    """Draw the nodes and connections of a genome: inputs on the left, outputs on the right.

    Blue connections are positive, red ones negative, wider ones stronger, dotted ones disabled. Text shows the weight
    of a connection, and the activation and bias of a node.

    Parameters
    ----------
    inputs, outputs : names of these nodes; empty: numbered

    Raises
    ------
    SpecError : the number of names differs from that of the inputs or outputs
    """
    wide, out = genome.interface.inputs, genome.interface.outputs
    names = dict(enumerate(_node_names("input", inputs, "in", wide)))
    names |= {wide + i: name for i, name in enumerate(_node_names("output", outputs, "out", out))}
    depths = node_columns(genome)
    boxes = {str(node): DiagramBox(text=names[node], column=depths[node], role="input") for node in range(wide)}
    for node in genome.nodes:
        key, aggregation = int(node["id"]), AGGREGATIONS[node["aggregation"]]
        joined = "" if aggregation == "sum" else f"{aggregation}, "
        text = f"{names.get(key, f'node {key}')}\n{joined}{ACTIVATIONS[node['activation']]}\nbias {node['bias']:.2g}"
        boxes[str(key)] = DiagramBox(text=text, column=depths[key], role="output" if key < wide + out else "hidden")
    genes = genome.connections
    edges = [
        DiagramLine(source=str(s), target=str(t), weight=w, faint=not on)
        for s, t, w, on in zip(
            genes["source"].tolist(), genes["target"].tolist(), genes["weight"].tolist(), genes["enabled"].tolist(),
            strict=True,
        )
    ]  # fmt: skip
    return Diagram(title=title, boxes=boxes, edges=edges, faint="disabled connection").draw()


def draw_network(network: Network, title: str = "network") -> Figure:
    """Draw the layers of a network from left to right, each container as a frame around its children.

    Dotted lines are links and residuals. A disabled layer is marked "(off)". A network with several rows or columns,
    or with more than 16 layers in a chain, is drawn as its grid instead, see `draw_slabs`.
    """
    if network.grid.rows * network.grid.cols > 1 or len(network.layers) > _CHAIN:
        return draw_slabs(network, title)
    opened = _LayerDiagram()
    inputs = {name: _INPUT if name == INPUT else f"{_INPUT} {name}" for name in network.ports}
    for name, port in network.ports.items():
        opened.boxes[inputs[name]] = DiagramBox(
            text=f"{name}\n{'×'.join(map(str, port.shape))}", column=0, role="input"
        )
    output_box: dict[Coord, str] = {}
    read: dict[Coord, str] = {}

    def value(source: Source) -> str:
        if source.coord is None:
            return inputs[source.port]
        return (output_box if source.side == "output" else read)[source.coord]

    later: list[tuple[str, Source]] = []
    for wire in network.wires:
        spec, coord = network.layers[wire.coord], wire.coord
        ready = [source for source in wire.inputs if source.coord is None or source.coord in output_box]
        later += [(str(coord), source) for source in wire.inputs if source not in ready]
        first, *others = map(value, ready) if ready else (_INPUT,)
        read[coord], before = first, len(opened.edges)
        if wire.identity:
            output_box[coord] = opened.leaf(str(coord), f"{coord}\n{spec.kind} (off)", first)
        else:
            shape = "×".join(str(size) for size in network.shapes[coord] if size > 0)
            output_box[coord] = opened.add(str(coord), f"{coord}", spec, first, f"→ {shape}")
        if not ready:  # placed after the input, without a line
            opened.edges[before:] = [edge for edge in opened.edges[before:] if edge.source != _INPUT]
        ends = [*others, *([] if wire.skip is None else [value(wire.skip)])]
        opened.edges += [DiagramLine(source=end, target=opened.entry[str(coord)], faint=True) for end in ends]
    opened.edges += [DiagramLine(source=value(source), target=opened.entry[at], faint=True) for at, source in later]
    for name, coord in network.taps.items():
        box = opened.boxes[output_box[coord]]
        text = box.text if name == OUTPUT else f"{box.text}\n{name}"
        opened.boxes[output_box[coord]] = dataclasses.replace(box, text=text, role="output")
    return Diagram(
        title=title, boxes=opened.boxes, edges=opened.edges, frames=opened.frames, faint="link or residual"
    ).draw()


class _LayerDiagram:
    """Boxes, lines and frames of layers, added one after the other."""

    def __init__(self) -> None:
        self.boxes: dict[str, DiagramBox] = {}
        self.edges: list[DiagramLine] = []
        self.frames: list[DiagramFrame] = []
        self.entry: dict[str, str] = {}

    def leaf(self, path: str, text: str, *sources: str, role: str = "hidden") -> str:
        """Add a box to the right of its sources and return its name."""
        column = 1 + max(self.boxes[source].column for source in sources)
        self.boxes[path] = DiagramBox(text=text, column=column, role=role)
        self.edges += [DiagramLine(source=source, target=path) for source in sources]
        self.entry[path] = path
        return path

    def add(self, path: str, name: str, spec: LayerSpec, source: str, shape: str = "") -> str:
        """Add a layer, or the children of a container, and return the name of the box with its output."""
        children = spec.children()
        if not 0 < len(children) <= _CHILDREN:
            return self.leaf(path, "\n".join(filter(None, (name, _layer_text(spec), shape))), source)
        before = list(self.boxes)
        if isinstance(spec, Sequential):
            end = self._sequential(path, spec, source)
        elif isinstance(spec, Parallel):
            end = self._parallel(path, spec, source)
        else:  # a scaffold: its own operations are the box at the end of its children
            ends = [self.add(f"{path}/{name}", name, child, source) for name, child in children.items()]
            end = self.leaf(f"{path}/join", spec.kind, *ends, role="join")
        inside = tuple(box for box in self.boxes if box not in before)
        self.entry[path] = inside[0]
        self.frames.append(DiagramFrame(text=" ".join(filter(None, (name, spec.kind, shape))), boxes=inside))
        return end

    def _sequential(self, path: str, spec: Sequential, source: str) -> str:
        values = [source]
        for i, child in enumerate(spec.layers):
            end = self.add(f"{path}/{i}", "", child, values[-1])
            if isinstance(child, Residual):
                skip = values[inner_source(child.source, i)]
                self.edges.append(DiagramLine(source=skip, target=end, faint=True))
            values.append(end)
        return values[-1]

    def _parallel(self, path: str, spec: Parallel, source: str) -> str:
        ends = [self.add(f"{path}/{i}", "", branch, source) for i, branch in enumerate(spec.branches)]
        if spec.gate is not None:
            ends.append(self.add(f"{path}/gate", "gate", spec.gate, source))
        return self.leaf(f"{path}/join", spec.combine, *ends, role="join")


def _layer_text(spec: LayerSpec) -> str:
    """Return the kind of a layer, its width if it has one, and its activation."""
    width = getattr(spec, "out_features", None)
    activation = getattr(spec, "activation", "linear")
    return f"{spec.kind}{'' if width is None else f' {width}'}{'' if activation == 'linear' else f' {activation}'}"


def _node_names(what: str, names: Sequence[str], short: str, count: int) -> Sequence[str]:
    if names and len(names) != count:
        raise SpecError(
            f"got {len(names)} names for {count} {what}s", hint=f'name every {what}: {what}s = ["a", "b"], or none'
        )
    return names or [f"{short} {i}" for i in range(count)]
