"""Latency: the number of rows until an output can depend on an input."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.fabric.layer.node_facts import FabricFacts

if TYPE_CHECKING:
    from volumetric.fabric.layer.fabric_layer import Fabric

NEVER = np.iinfo(np.int64).max // 2
"""A latency that means never."""


def latencies(spec: Fabric) -> dict[str, dict[str, int | None]]:
    """Return the minimum number of rows until each output can depend on each input: output → input → rows."""
    names = [port.name for port in spec.inputs]
    return {
        port.name: {name: latency(spec.facts, name, port.name, spec.inner_steps) for name in names}
        for port in spec.outputs
    }


def check_reached(spec: Fabric) -> dict[str, dict[str, int | None]]:
    """Return `latencies`; raise `SpecError` if an output can depend on no input."""
    late = latencies(spec)
    for name, row in late.items():
        if all(rows is None for rows in row.values()):
            silent = spec.facts.silent.any()
            hint = (
                "use fewer heads: cells with 1 number per head are always 0"
                if silent
                else "use a larger radius, or more edges"
            )
            raise SpecError(f"output {name!r} can depend on no input", hint=hint)
    return late


def latency(facts: FabricFacts, source: str, target: str, inner_steps: int = 1) -> int | None:
    """Return the minimum number of rows until a change of an input can change an output; None: never.

    0 is the same row: with enough inner steps a row reaches the output at once.
    """
    shown = shown_from(facts, facts.ports[source], inner_steps)
    edges = slice(facts.to_cells, None)
    readers, late = facts.receivers[edges] - facts.cells, facts.delay[edges].astype(np.int64)
    own = facts.ports[target]
    mine = (readers >= own.start) & (readers < own.stop)
    earliest = shown[facts.senders[edges][mine]]
    earliest, late = earliest[earliest < NEVER], late[mine][earliest < NEVER]
    # An output reads public outputs after the last inner step of a row; a delayed edge adds its rows.
    rows = -(-earliest // inner_steps) - 1 + late - 1
    return int(rows.min()) if rows.size else None


def shown_from(facts: FabricFacts, port: slice, inner_steps: int = 1) -> Array:
    """Return the first inner step after which each sender depends on an input, int64 ``[inputs + cells]``.

    Inner steps are counted from the row in which the input changes: step 0 is its first one.
    """
    count = facts.to_cells
    by_sender = np.argsort(facts.senders[:count], kind="stable")
    first = np.searchsorted(facts.senders[:count][by_sender], np.arange(facts.senders_count + 1))
    readers, late = facts.inputs + facts.receivers[by_sender], facts.delay[by_sender].astype(np.int64)
    shown = np.full(facts.senders_count, NEVER, np.int64)
    coming: dict[int, list[Array]] = {0: [np.arange(facts.inputs)[port]]}
    times = [0]
    while times:
        now = heapq.heappop(times)
        nodes = np.unique(np.concatenate(coming.pop(now)))
        nodes = nodes[(shown[nodes] > now) & ~facts.silent[nodes]]
        shown[nodes] = now
        counts = first[nodes + 1] - first[nodes]
        edges = np.repeat(first[nodes] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        # A delayed edge carries the public output at the start of a row, its delay later.
        slow = (-(-now // inner_steps) + late[edges] - 1) * inner_steps
        arrives = np.where(late[edges] == 1, now, slow) + 1
        for then in np.unique(arrives).tolist():
            if then not in coming:
                coming[then] = []
                heapq.heappush(times, then)
            coming[then].append(readers[edges[arrives == then]])
    return shown
