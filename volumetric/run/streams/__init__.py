"""Streams: endless sequences that run in parallel, through a network row by row or through another kind of machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from volumetric.base.moved_modules import moved_names_getattr
from volumetric.network import Network, Params
from volumetric.run.device import Device, RunOptions
from volumetric.run.streams.resident_stream import ResidentStream, stays_resident
from volumetric.run.streams.row_stream import RowStream

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class Streamable(Protocol[S_co]):
    """A machine that implements its own streams, such as a clocked network."""

    def stream_on(self, device: Any, params: Params, *, batch: int = 1) -> S_co:
        """Return `batch` streams of it on a device."""
        ...


def open_stream(
    device: Any,
    machine: Network | Streamable[S],
    params: Params,
    *,
    batch: int = 1,
    options: RunOptions | None = None,
) -> RowStream | S:
    """Return `batch` streams on a device; `Device.stream` is this.

    `options` are for networks that run row by row; other machines compute in float32 and need no context.
    """
    if not isinstance(machine, Network):
        return machine.stream_on(device, params, batch=batch)
    kind = device.info.kind
    if kind in ("cpu", "gpu") and options is None and stays_resident(machine, params):
        graphs = device.graphs(batch_invariant=True) if kind == "cpu" else device.graphs()
        return ResidentStream(graphs, machine, params, batch=batch, device=device)
    return RowStream(device, machine, params, batch=batch, options=options)


class StreamingDevice(Device, Protocol):
    """A device with streams, as all devices of this package."""

    def stream(self, machine: Network | Streamable[S], params: Params, *, batch: int = 1) -> RowStream | S:
        """Open `batch` streams through a network or another machine."""
        ...


if not TYPE_CHECKING:  # to type checkers a former name is unknown
    __getattr__ = moved_names_getattr(__name__)
