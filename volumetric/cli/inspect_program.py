"""The part of ``inspect`` for programs (regions, edges, clocks, ports, latencies) and clocked networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from volumetric.base.progress import byte_size
from volumetric.cli import console
from volumetric.clocked import Clocked
from volumetric.loaders import LoadedModel

if TYPE_CHECKING:
    from volumetric.network import Network
    from volumetric.program import Program


def show_program(path: str, *, json: bool) -> None:
    """Print the facts about a program, as text or as one JSON object.

    Raises
    ------
    VolumetricError : the file cannot be read, or does not contain a program
    """
    from volumetric.program import read_program
    from volumetric.program.describe import describe

    facts = describe(read_program(path))
    if json:
        console.write_json({"program": path, **facts}, indent=2)
        return
    canvas = facts["canvas"]
    frames = console.plural(canvas["frames"], "frame")
    lines = {
        "program": path,
        "canvas": f"{frames} of {'×'.join(map(str, canvas['shape']))}, {canvas['width']} wide: "
        f"{canvas['positions']:,} positions, {canvas['covered']:,} in regions",
        "state": f"{byte_size(sum(facts['states'].values()))} a stream, {byte_size(canvas['bytes'])} of it the canvas",
        "parameters": f"{facts['parameters']:,}",
        "time": facts["time"],
        "regions": f"{len(facts['regions']):,}, {_count_with(facts['regions'], 'clock')} with clocks",
        "edges": f"{len(facts['edges']):,}, {_count_with(facts['edges'], 'when')} with conditions",
    }
    width = max(map(len, lines)) + 2
    console.write("".join(f"{name + ':':{width}}{value}\n" for name, value in lines.items()))
    _show_parts(facts)


def show_programs(network: Network) -> None:
    """Print regions, edges and ports of the programs that are layers of a network; equal ones are printed once."""
    from volumetric.program.describe import describe
    from volumetric.program.layer.program_layer import Program as Layer

    at: dict[Program, list[str]] = {}
    for coord, spec in network.layers.items():
        if isinstance(spec, Layer):
            at.setdefault(spec.program, []).append(str(coord))
    for program, coords in at.items():
        console.write(f"program at {', '.join(coords)}:\n")
        _show_parts(describe(program))


def parts_of(program: Program) -> str:
    """Return the numbers of regions, edges and ports of a program."""
    return f"{len(program.canvas.regions):,} regions, {len(program.edges):,} edges, {len(program.ports):,} ports"


def _show_parts(facts: dict[str, Any]) -> None:
    """Print tables of regions, edges and ports, and the problems."""
    first = int(facts["canvas"]["frames"] == 1)  # with one frame, boxes have only spatial extent
    regions = [
        [
            name,
            of["family"],
            of["carrier"],
            _box(of["box"][first:]),
            f"{of['positions']:,}",
            of["clock"] or "",
            _meter(of),
        ]
        for name, of in facts["regions"].items()
    ]
    columns = ("region", "family", "carrier", "box", "positions", "clock", "meter")
    console.table(columns, regions, right=("positions",), fold=("clock", "meter"))
    if facts["edges"]:
        edges = [
            [name, of["operator"], of["rule"], of["write"], f"{of['weight']:g}", _lag(of), _pairs(of), of["when"] or ""]
            for name, of in facts["edges"].items()
        ]
        columns = ("edge (writes<reads)", "operator", "rule", "write", "weight", "lag", "pairs", "when")
        console.table(columns, edges, right=("weight", "lag", "pairs"), fold=("when",))
    if facts["ports"]:
        ports = [
            [name, of["kind"], of["region"] or "", f"{of['columns'][0]} … {of['columns'][1] - 1}", _steps(facts, name)]
            for name, of in facts["ports"].items()
        ]
        console.table(("port", "kind", "region", "columns", "steps until it can change"), ports)
    for problem in facts["problems"]:
        console.write(f"problem: {problem}\n")


def _count_with(of: dict[str, dict[str, Any]], field: str) -> str:
    return f"{sum(one[field] is not None for one in of.values()):,}"


def _box(box: list[list[int]]) -> str:
    return " ".join(f"{low}:{high}" for low, high in box)


def _meter(of: dict[str, Any]) -> str:
    return "" if of["meter"] is None else ", ".join(of["meter"])


def _lag(of: dict[str, Any]) -> str:
    return "" if of["lag"] is None else str(of["lag"])


def _pairs(of: dict[str, Any]) -> str:
    return f"{of['pairs']:,}" if of["pairs"] == of["of_pairs"] else f"{of['pairs']:,} of {of['of_pairs']:,}"


def _steps(facts: dict[str, Any], name: str) -> str:
    if name not in facts["latency"]:
        return ""
    steps = facts["latency"][name]
    return "never" if steps is None else f"{steps:,}"


def clocked_facts(loaded: LoadedModel, window: int, checkpoint: int) -> dict[str, Any]:
    """Return the facts.

    Raises
    ------
    UnsupportedError : a layer cannot run tick by tick
    """
    from volumetric.clocked.measures import bucket_counts, history_bytes, state_bytes
    from volumetric.clocked.window import Machine

    clocked = loaded.clocked or Clocked(network=loaded.network)
    network = clocked.network
    return {
        "clocked_json": loaded.clocked is not None,
        "start": clocked.start,
        "hold": {name: clocked.hold.get(name, "last") for name in network.ports},
        "clocks": {str(coord): str(clock) for coord, clock in sorted(clocked.clocks.items())},
        "depth": max(clocked.depths.values()),
        "buckets": {way: {"buckets": n, "layers": m} for way, (n, m) in bucket_counts(Machine(clocked, 1)).items()},
        "latency": {name: {tap: clocked.latency(name, tap) for tap in network.taps} for name in network.ports},
        "state_bytes": state_bytes(clocked),
        "history": {
            "window": window,
            "checkpoint": checkpoint,
            "bytes": history_bytes(clocked, window, checkpoint=checkpoint),
        },
    }


def show_clocked(loaded: LoadedModel, *, window: int, checkpoint: int, json: bool) -> None:
    """Print the facts, as text or as one JSON object."""
    facts = clocked_facts(loaded, window, checkpoint)
    if json:
        console.write_json({"model": loaded.name, **facts}, indent=2)
        return
    how = ", ".join(f"{n['layers']:,} layers in {n['buckets']:,} ({way})" for way, n in facts["buckets"].items())
    remade = f", {checkpoint} between checkpoints" if checkpoint else ""
    history = facts["history"]["bytes"]
    lines = {
        "model": loaded.name,
        "clocked.json": "yes" if facts["clocked_json"] else "no: every layer at every tick",
        "start": facts["start"],
        "inputs hold": ", ".join(f"{name}: {what}" for name, what in facts["hold"].items()),
        "clocks": f"{len(facts['clocks'])} layers do not run at every tick",
        "depth": f"{facts['depth']:,} ticks on the longest path without backward connections",
        "buckets": how,
        "state": f"{byte_size(facts['state_bytes'])} a stream",
        "history": f"{byte_size(history)} a stream for gradients through {window:,} ticks{remade}",
    }
    width = max(map(len, lines)) + 2
    console.write("".join(f"{name + ':':{width}}{value}\n" for name, value in lines.items()))
    ways = facts["latency"].items()
    rows = [(a, b, "never" if n is None else f"{n:,}") for a, row in ways for b, n in row.items()]
    console.table(("input", "output", "ticks until it can change"), rows, right=("ticks until it can change",))
