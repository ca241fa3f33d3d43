"""What ``inspect --clocked`` tells: how a model runs tick by tick, and what that keeps."""

from __future__ import annotations

import json as jsonlib
from typing import Any

from volumetric.cli import console
from volumetric.clocked import Clocked
from volumetric.loaders import LoadedModel
from volumetric.progress import byte_size


def clocked_facts(loaded: LoadedModel, window: int, checkpoint: int) -> dict[str, Any]:
    """Return the facts.

    Raises
    ------
    UnsupportedError : a layer cannot run tick by tick
    """
    from volumetric.runtime.clocked.measures import history_bytes, state_bytes, ways
    from volumetric.runtime.clocked.window import Machine

    clocked = loaded.clocked or Clocked(network=loaded.network)
    network = clocked.network
    return {
        "clocked_json": loaded.clocked is not None,
        "start": clocked.start,
        "hold": {name: clocked.hold.get(name, "last") for name in network.ports},
        "clocks": {str(coord): str(clock) for coord, clock in sorted(clocked.clocks.items())},
        "depth": max(clocked.depths.values()),
        "buckets": {way: {"buckets": n, "layers": m} for way, (n, m) in ways(Machine(clocked, 1)).items()},
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
        console.write(jsonlib.dumps({"model": loaded.name, **facts}, indent=2) + "\n")
        return
    how = ", ".join(f"{n['layers']:,} layers in {n['buckets']:,} ({way})" for way, n in facts["buckets"].items())
    remade = f", {checkpoint} between checkpoints" if checkpoint else ""
    history = facts["history"]["bytes"]
    told = {
        "model": loaded.name,
        "clocked.json": "yes" if facts["clocked_json"] else "no: every layer at every tick",
        "start": facts["start"],
        "inputs hold": ", ".join(f"{name}: {what}" for name, what in facts["hold"].items()),
        "clocks": f"{len(facts['clocks'])} layers do not fire at every tick",
        "depth": f"{facts['depth']:,} ticks on the longest way that does not go backwards",
        "buckets": how,
        "state": f"{byte_size(facts['state_bytes'])} a stream",
        "history": f"{byte_size(history)} a stream for gradients through {window:,} ticks{remade}",
    }
    width = max(map(len, told)) + 2
    console.write("".join(f"{name + ':':{width}}{value}\n" for name, value in told.items()))
    ways = facts["latency"].items()
    rows = [(a, b, "never" if n is None else f"{n:,}") for a, row in ways for b, n in row.items()]
    console.table(("input", "output", "ticks until it can change"), rows, right=("ticks until it can change",))
