"""Running a model, or replaying a recording, for ``scope``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from volumetric.base.errors import SpecError
from volumetric.cli import console, exits
from volumetric.cli.interrupts import Stopped, StopRequest, stop_between, stop_on_interrupt
from volumetric.cli.options import SourceOptions
from volumetric.cli.run import advance, machine_of, rows_of, standardise_rows
from volumetric.cli.run_outputs import save_recording
from volumetric.cli.run_rows import CHUNK
from volumetric.clocked import Clocked
from volumetric.devices.named_devices import open_device
from volumetric.loaders import open_model
from volumetric.observe.activity_server import ActivityServer
from volumetric.observe.recorder import MOST, ActivityFrame, Recorder
from volumetric.observe.recording import Recording, describe
from volumetric.run.streams import open_stream
from volumetric.run.streams.stream_chunks import StreamChunk
from volumetric.viz.activity_film import live_page

_LAST: Final = 10.0
"""Seconds for viewers to receive the last frames."""
_LOOK: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class ScopeRun:
    """A run of a model with its layers observed; the fields are flags of ``scope``."""

    model: str
    rows: str | None
    ticks: int | None
    per_row: int
    clocked: bool | None
    batch: int | None
    row: int
    every: int
    edges: int
    device: str
    files: SourceOptions

    def record(self, out: Path) -> int:
        """Run, and write a recording."""
        stopping = StopRequest()
        with self._open(stopping, MOST) as (recorder, chunks, name):
            self._go(recorder, chunks, stopping)
            recorder.close()
            save_recording(recorder, name, out, per_row=self.per_row, device=self.device)
        return exits.INTERRUPTED if stopping.requested else exits.OK

    def serve(self, port: int, rate: int) -> int:
        """Run, and show it to browsers on this machine, after the first one has connected."""
        stopping = StopRequest()
        with self._open(stopping, 0) as (recorder, chunks, name):
            server = ActivityServer(recorder.scene, port, page=live_page(recorder.scene, name))
            try:
                recorder.tell = _paced_sender(server, rate)
                if _wait_for_viewer(server, stopping):
                    self._go(recorder, chunks, stopping)
                    server.drained(_LAST)
            finally:
                server.close()
        return exits.INTERRUPTED if stopping.requested else exits.OK

    @contextmanager
    def _open(self, stopping: StopRequest, most: int) -> Iterator[tuple[Recorder, Iterator[StreamChunk], str]]:
        files = self.files
        with console.progress(f"reading {self.model}…"):
            loaded = open_model(
                self.model, files.dtype, offline=files.offline, strict=files.strict, guess=files.guessed()
            )
        machine = machine_of(loaded, self.clocked)
        if not isinstance(machine, Clocked) and (self.ticks is not None or self.per_row != 1):
            raise SpecError(
                "--ticks and --per-row apply only to networks that run tick by tick",
                hint="add --clocked to run a network tick by tick",
            )
        with ExitStack() as opened:
            rows, streams = rows_of(
                self.rows, self.ticks, loaded, self.batch, opened, stopping, afresh=not isinstance(machine, Clocked)
            )
            with console.progress(f"loading {loaded.name} on {self.device}…"):
                stream = open_stream(open_device(self.device), machine, loaded.params, batch=streams)
            recorder = Recorder(stream, row=self.row, every=self.every, most=most, edges=self.edges)
            yield recorder, (standardise_rows(loaded, chunk) for chunk in rows), loaded.name

    def _go(self, recorder: Recorder, chunks: Iterator[StreamChunk], stopping: StopRequest) -> None:
        with stop_between(stopping, "these rows"), contextlib.suppress(Stopped):
            for chunk in chunks:
                advance(recorder, chunk, self.per_row)
                if stopping.requested:
                    return
            for start in range(0, self.ticks or 0, CHUNK):
                advance(recorder, StreamChunk(x={}, count=min(CHUNK, (self.ticks or 0) - start)), 1)
                if stopping.requested:
                    return


def replay(recording: Recording, port: int, rate: int) -> int:
    """Show a recording once to browsers on this machine, after the first one has connected."""
    title = recording.meta.title or describe(recording)
    server = ActivityServer(recording.scene, port, page=live_page(recording.scene, title))
    stopping = StopRequest()
    try:
        if _wait_for_viewer(server, stopping):
            tell = _paced_sender(server, rate)
            values = recording.values()
            with stop_on_interrupt("this frame") as stop:
                for i, t in enumerate(recording.ticks.tolist()):
                    edge = recording.edge[i] / 255
                    tell(
                        ActivityFrame(
                            t=t, rms=values[i], fired=recording.fired[i], reset=bool(recording.reset[i]), edge=edge
                        )
                    )
                    if stop.is_set():
                        return exits.INTERRUPTED
            server.drained(_LAST)
    finally:
        server.close()
    return exits.INTERRUPTED if stopping.requested else exits.OK


def _wait_for_viewer(server: ActivityServer, stopping: StopRequest) -> bool:
    """Wait for the first viewer; Ctrl-C ends the wait."""
    console.note(f"open {server.address} in a browser to start; Ctrl-C ends it")
    with stop_between(stopping, "waiting"), contextlib.suppress(Stopped):
        while not stopping.requested:
            if server.wait_for_viewers(_LOOK):
                return True
    return False


def _paced_sender(server: ActivityServer, rate: int) -> Callable[[ActivityFrame], None]:
    """Return a function that sends frames to the server, at most `rate` a second."""
    due = time.monotonic()

    def tell(frame: ActivityFrame) -> None:
        nonlocal due
        time.sleep(max(0.0, due - time.monotonic()))
        due = max(due, time.monotonic() - 1.0) + 1 / rate
        server.push(frame)

    return tell
