"""Streams: sequences without an end, side by side, through a network row by row, or a clocked one tick by tick."""

from __future__ import annotations

from typing import Any

from volumetric.clocked import Clocked
from volumetric.clocked.stream import ClockedStream
from volumetric.network import Network, Params
from volumetric.run.device import RunOptions
from volumetric.run.streams.resident import ResidentStream, stays_resident
from volumetric.run.streams.rows import RowStream


def open_stream(
    device: Any, machine: Network | Clocked, params: Params, *, batch: int = 1, options: RunOptions | None = None
) -> RowStream | ClockedStream:
    """Return `batch` streams on a device; `Device.stream` is this.

    `options` are for networks that run row by row; clocked ones compute in float32, and need no context.
    """
    if isinstance(machine, Clocked):
        return ClockedStream(device, machine, params, batch=batch)
    kind = device.info.kind
    if kind in ("cpu", "gpu") and options is None and stays_resident(machine, params):
        graphs = device.graphs(alike=True) if kind == "cpu" else device.graphs()
        return ResidentStream(graphs, machine, params, batch=batch)
    return RowStream(device, machine, params, batch=batch, options=options)
