"""Fabrics from tables of configuration files; errors name the key."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from volumetric.base import config_tables
from volumetric.base.errors import SpecError
from volumetric.builders import BUILDERS
from volumetric.builders.sequential import chain
from volumetric.fabric.layer.cell_populations import GRU, LSTM, RNN, SLSTM, Axon, Cell, CellPopulation, InPort, OutPort
from volumetric.fabric.layer.edge_rules import Annulus, Columns, ExplicitEdges, LocalRadius, Rule, SmallWorld
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_graphs import Graph, Lattice, NodePlaces
from volumetric.fabric.layer.node_latency import check_reached
from volumetric.fabric.layer.node_sets import Corners, Nodes, Region, XBand, YBand, ZBand
from volumetric.layers import Embedding
from volumetric.network import Network

P = TypeVar("P", InPort, OutPort)


def _lattice2d(width: int, height: int, wrap: bool = False) -> Lattice:
    return Lattice((width, height), wrap)


def _lattice3d(width: int, height: int, depth: int, wrap: bool = False) -> Lattice:
    return Lattice((width, height, depth), wrap)


def _explicit(coords: tuple[tuple[float, ...], ...]) -> NodePlaces:
    return NodePlaces(coords)


def _by_tag(*structs: Any) -> MappingProxyType[str, Callable[..., Any]]:
    return MappingProxyType({struct.__struct_config__.tag: struct for struct in structs})


GRAPHS: Final = MappingProxyType({"lattice2d": _lattice2d, "lattice3d": _lattice3d, "explicit": _explicit})
CELLS: Final = _by_tag(SLSTM, Axon, LSTM, GRU, RNN)
RULES: Final = _by_tag(LocalRadius, Annulus, SmallWorld, Columns, ExplicitEdges)
PLACES: Final = _by_tag(XBand, YBand, ZBand, Region, Corners)
_PARTS: Final = ("inputs", "outputs", "populations", "connectivity", "edges")
_INTERFACE: Final = MappingProxyType({"public": int, "message": int})
_MESSAGE: Final = MappingProxyType(
    {
        "kind": Literal["dot_product"],
        "head_dim": int,
        "heads": int,
        "value_dim": int,
        "query": Literal["slot", "state"],
        "share": tuple[int, ...],
        "learn_distance": bool,
    }
)
_IN: Final = MappingProxyType({"nodes": Any, "dim": int})
_OUT: Final = MappingProxyType(
    {"nodes": Any, "dim": int, "aggregate": Literal["mean", "flatten", "attend"], "slots": int}
)


def fabric_of_data(
    outputs: int,
    *,
    graph: dict[str, Any],
    interface: dict[str, Any] | None = None,
    message: dict[str, Any] | None = None,
    inner_steps: int = 1,
    dynamic: bool = False,
    without: list[int] | None = None,
    width: int | None = None,
    vocabulary: int | None = None,
    inputs: int | None = None,
) -> Network:
    """Return a network with one fabric that maps the data's rows to their targets; the builder of configuration files.

    Parameters
    ----------
    outputs : width of the output row: all outputs concatenated
    graph : table with a ``kind``, ``"lattice2d"`` (`width`, `height`, `wrap`), ``"lattice3d"`` (and `depth`) or
        ``"explicit"`` (`coords`, `edges`); and tables by name: ``inputs`` (`nodes`, `dim`), ``outputs`` (and
        `aggregate`, `slots`), ``populations`` (`cell`, `nodes`, `share`), and ``connectivity``, a list of rules. By
        default, a single input of a lattice is the first column along x, a single output the last; the default width
        of a single port is that of the data
    interface : ``public`` and ``message``, the widths inside the fabric
    message : ``head_dim``, ``heads``, ``value_dim``, ``query`` (``"slot"`` or ``"state"``), ``share`` (a tile of
        senders) and ``learn_distance``, see `volumetric.fabric.DotProduct`
    inner_steps : number of message exchanges per row
    dynamic : nodes can be masked
    without : nodes of the graph that do not exist
    width : width of the embedding of token ids; None: that of the cells, or of all inputs together
    vocabulary : number of token ids, if the data are token ids
    inputs : width of a row of the data

    Raises
    ------
    SpecError : an entry is unknown or invalid (the message names its key), widths do not match the data, or an output
        can depend on no input
    """
    body, parts = _graph(graph)
    populations = _populations(parts.get("populations"))
    ins = _ports(parts.get("inputs", {"input": {}}), _IN, "graph.inputs")
    outs = _ports(parts.get("outputs", {"output": {}}), _OUT, "graph.outputs")
    hidden = populations[0].cell.hidden
    if vocabulary and width is None:
        dims = [port["dim"] for port in ins.values() if "dim" in port]
        width = sum(dims) if len(dims) == len(ins) else hidden
    features = width if vocabulary else inputs
    if features is None:
        raise SpecError("a fabric reads sequences of token ids or rows", hint="use data of shape [samples, T, …]")
    _fill(ins, features, "inputs", "the embedding has" if vocabulary else "the data have")
    _fill(outs, outputs, "outputs", "the targets have")
    low, high = (XBand(side) if isinstance(body, Lattice) else None for side in ("low", "high"))
    message_fields = {} if message is None else config_tables.entries(message, _MESSAGE, "message")
    message_fields.pop("kind", None)
    if "share" in message_fields:
        message_fields["kv_tile"] = message_fields.pop("share")
    spec = Fabric(
        graph=body,
        inputs=tuple(_port(InPort, name, of, low, len(ins), "inputs") for name, of in ins.items()),
        outputs=tuple(_port(OutPort, name, of, high, len(outs), "outputs") for name, of in outs.items()),
        populations=populations,
        connectivity=_rules(parts, body),
        inner_steps=inner_steps,
        dynamic=dynamic,
        without=tuple(without or ()),
        **({} if interface is None else config_tables.entries(interface, _INTERFACE, "interface")),
        **message_fields,
    )
    check_reached(spec)
    if not vocabulary:
        return chain([spec], (features,))
    return chain([Embedding(num_embeddings=vocabulary, embedding_dim=features), spec], (), "int32")


def _graph(table: dict[str, Any]) -> tuple[Graph, dict[str, Any]]:
    """Return the graph, and the other parts of the table."""
    kind = table.get("kind", "lattice2d")
    own = config_tables.argument_types(GRAPHS[kind]) if isinstance(kind, str) and kind in GRAPHS else {}
    if own:
        config_tables.expect_keys(table, ("kind", *own, *_PARTS), "graph")
    parts = {key: table[key] for key in _PARTS if key in table}
    rest = {key: value for key, value in table.items() if key not in parts}
    return config_tables.build_from_registry(GRAPHS, {"kind": kind, **rest}, "graph"), parts


def _populations(table: Any) -> tuple[CellPopulation, ...]:
    if not table:
        raise SpecError(
            "graph.populations must be given", hint='populations.core = { cell = { kind = "slstm", hidden = 32 } }'
        )
    populations = []
    for name, of in _named_tables(table, "graph.populations"):
        where = f"graph.populations.{name}"
        fields = config_tables.expect_keys(of, ("cell", "nodes", "share"), where)
        if "cell" not in fields:
            raise SpecError(f"{where}: cell must be given", hint='cell = { kind = "slstm", hidden = 32 }')
        cell: Cell = config_tables.build_from_registry(CELLS, fields["cell"], f"{where}.cell")
        nodes = _nodes(fields["nodes"], f"{where}.nodes") if "nodes" in fields else None
        populations.append(
            CellPopulation(
                name, cell, nodes, config_tables.checked_value(fields.get("share", "none"), str, f"{where}.share")
            )
        )
    return tuple(populations)


def _ports(table: Any, types: MappingProxyType[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """Return ports by name, with parsed nodes."""
    ports = {name: config_tables.entries(of, types, f"{where}.{name}") for name, of in _named_tables(table, where)}
    for name, of in ports.items():
        if "nodes" in of:
            of["nodes"] = _nodes(of["nodes"], f"{where}.{name}.nodes")
    return ports


def _fill(ports: dict[str, dict[str, Any]], width: int, what: str, has: str) -> None:
    """Set the width of the port without `dim` to the remaining width."""
    without = [name for name, of in ports.items() if "dim" not in of]
    left = width - sum(of.get("dim", 0) for of in ports.values())
    if len(without) > 1:
        raise SpecError(f"graph.{what}.{without[0]}: dim must be given", hint="only one port can leave it to the data")
    if without and left >= 1:
        ports[without[0]]["dim"] = left
    elif without or left:
        raise SpecError(
            f"graph.{what} have {width - left} numbers in all, {has} {width}",
            hint="leave out the dim of one of them",
        )


def _port(make: Callable[..., P], name: str, of: dict[str, Any], end: Nodes | None, count: int, what: str) -> P:
    if "nodes" not in of and (end is None or count > 1):
        raise SpecError(f"graph.{what}.{name}: nodes must be given", hint='ids, or { kind = "x_band", side = "low" }')
    return make(name=name, **({"nodes": end} | of))


def _rules(parts: dict[str, Any], body: Graph) -> tuple[Rule, ...]:
    """Return the rules of connectivity; by default, neighbours on a lattice."""
    listed = parts.get("connectivity", [{"kind": "local_radius", "radius": 1.5}] if isinstance(body, Lattice) else [])
    if not isinstance(listed, list):
        raise SpecError(
            f"graph.connectivity: expected a list, got {listed!r}", hint='[{ kind = "local_radius", radius = 1.5 }]'
        )
    rules: list[Rule] = []
    if "edges" in parts:
        pairs = config_tables.checked_value(parts["edges"], tuple[tuple[int, int], ...], "graph.edges")
        rules.append(ExplicitEdges(pairs, None))
    rules += (
        config_tables.build_from_registry(RULES, rule, f"graph.connectivity[{i}]") for i, rule in enumerate(listed)
    )
    if not rules:
        raise SpecError("graph: there are no edges", hint="edges = [[1, 0], …] (receiver, sender), or connectivity")
    return tuple(rules)


def _nodes(value: Any, where: str) -> Nodes:
    """Return node ids, or a named set of nodes."""
    return (
        config_tables.checked_value(value, tuple[int, ...], where)
        if isinstance(value, list)
        else config_tables.build_from_registry(PLACES, value, where)
    )


def _named_tables(table: Any, where: str) -> list[tuple[str, Any]]:
    if not isinstance(table, dict) or not table:
        raise SpecError(f"{where}: expected tables by name, got {table!r}")
    return [*table.items()]


BUILDERS["fabric"] = fabric_of_data
