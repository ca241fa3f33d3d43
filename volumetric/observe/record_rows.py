"""Recordings of rows that are there already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.devices.named_devices import AnyDevice, open_device
from volumetric.network import INPUT, Network, Params
from volumetric.observe.recorder import AnyStream, Recorder
from volumetric.observe.recording import Recording
from volumetric.run.streams import open_stream
from volumetric.run.streams.stream_chunks import StreamChunk

_CALL: Final = 64  # rows per call


def record(
    machine: AnyStream | Network | Clocked,
    x: Array | Mapping[str, Array],
    *,
    params: Params | None = None,
    device: AnyDevice = "auto",
    resets: Array | None = None,
    row: int | None = 0,
    every: int = 1,
    edges: int = 4000,
    title: str = "",
) -> Recording:
    """Run rows through a network and record the activity of its layers.

    Parameters
    ----------
    machine : streams, which continue; or a network, whose streams start here on `device` with `params`
    x : ``[batch, T, …]``, or a dict by input
    resets : ``[batch, T]``, 1 resets a stream before that row
    row : index of the stream to record; None: all streams together
    every : ticks or rows from one frame to the next
    edges : maximum number of edges in the scene; if there are more, an even sample is shown

    Raises
    ------
    ShapeError, SpecError : rows do not match the network's inputs, `row` is out of range, or `params` are missing

    Examples
    --------
    >>> record(network, x, params=params).save("run.scope")  # doctest: +SKIP
    """
    inputs = dict(x) if isinstance(x, Mapping) else {INPUT: np.asarray(x)}
    if isinstance(machine, (Network, Clocked)):
        if params is None:
            raise SpecError("a network needs params to run", hint="pass them: record(network, x, params=…)")
        batch = len(next(iter(inputs.values())))
        stream: AnyStream = open_stream(open_device(device), machine, params, batch=batch)
    else:
        stream = machine
    recorder = Recorder(stream, row=row, every=every, edges=edges, most=2**62)
    marks = None if resets is None else np.asarray(resets)
    count = max(np.shape(value)[1] if np.ndim(value) > 1 else 0 for value in inputs.values())
    try:
        for at in range(0, max(count, 1), _CALL):
            some = slice(at, at + _CALL)
            part = {name: value[:, some] for name, value in inputs.items()} if count else inputs
            now = None if marks is None else marks[:, some]
            recorder.advance(StreamChunk(x=part, count=min(_CALL, count - at), resets=now))
    finally:
        recorder.close()
    return recorder.recording(title=title, device="" if not isinstance(device, str) else device)
