"""What ``scope`` was asked for: it finds out what the source is, and makes its page."""

from __future__ import annotations

import contextlib
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from volumetric.base.errors import SpecError
from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.interrupts import Stopped, StopRequest, stop_between
from volumetric.cli.options import SourceOptions
from volumetric.cli.row_log import RowLog
from volumetric.cli.run import advance, machine_of, rows_of, standardise_rows
from volumetric.cli.run_outputs import save_recording
from volumetric.cli.run_rows import CHUNK
from volumetric.observe.recording import SUFFIX, Recording, describe

if TYPE_CHECKING:
    from volumetric.loaders import LoadedModel
    from volumetric.observe.recorder import Recorder
    from volumetric.run.streams.stream_chunks import StreamChunk
    from volumetric.scope import Viewer

Kind = Literal["figure", "recording", "evolution", "training", "program", "genome", "model"]
_LOOK: Final = 0.1
"""Seconds between two looks for Ctrl-C."""
_RATE: Final = 10.0
_PROGRAM: Final = ".program.json"


@dataclass(frozen=True, kw_only=True)
class ScopeRequest:
    """The flags of ``scope``."""

    source: str
    others: tuple[str, ...]
    prompt: str | None
    rows: str | None
    ticks: int | None
    per_row: int
    clocked: bool | None
    batch: int | None
    row: int
    every: int
    edges: int
    rate: int | None
    device: str
    files: SourceOptions

    def serve(self, port: int, *, browser: bool) -> int:
        """Serve the page until Ctrl-C."""
        server = self._viewer(live=True).serve(port)
        try:
            console.note(f"open {server.address} in a browser; Ctrl-C ends it")
            if browser and sys.stderr.isatty():
                webbrowser.open(server.address)
            stopping = StopRequest()
            with stop_between(stopping, "this page"), contextlib.suppress(Stopped), stopping.waiting():
                while not stopping.requested:
                    time.sleep(_LOOK)
        finally:
            server.close()
        return exits.OK

    def write_page(self, out: Path) -> int:
        """Write the page as one file."""
        viewer = self._viewer(live=False)
        viewer.save(out)
        views = ", ".join(view.label.lower() for view in viewer.document.views)
        console.note(f"{views} of {self.source}: written to {out}")
        return exits.OK

    def record(self, out: Path) -> int:
        """Run the network and record it, or film a recording."""
        if self.kind == "recording":
            if out.suffix == SUFFIX:
                raise UsageError(f"{self.source} is a recording already", hint="--out FILE.html or FILE.gif draws it")
            from volumetric.viz.activity_film import save_film

            self._refuse_rows("a recording cannot run rows")
            recording = Recording.open(self.source)
            with console.progress(f"drawing {describe(recording)}…"):
                save_film(recording, out, rate=self.rate)
            console.note(f"{describe(recording)}: drawn in {out}")
            return exits.OK
        if self.kind != "model":
            raise UsageError(f"only a model can be recorded; {self.source} is a {self.kind}")
        if self.rows is None and self.ticks is None:
            raise UsageError(
                f"scope {self.source} --out {out} needs rows", hint="add --in FILE, --in - for stdin, or only --ticks"
            )
        stopping = StopRequest()
        loaded = self._opened_model()
        with self._running(stopping, loaded) as (recorder, chunks):
            self._advance(recorder, chunks, stopping)
            recorder.close()
            save_recording(recorder, loaded.name, out, per_row=self.per_row, device=self.device)
        return exits.INTERRUPTED if stopping.requested else exits.OK

    def draw(self, out: Path) -> int:
        """Draw what a page saved for a figure."""
        from volumetric.viz.figure import save_figure
        from volumetric.viz.scope_figure import draw_scope_figures, read_scope_figures

        if self.kind != "figure":
            raise UsageError(
                f"{out} can only be drawn from a figure that a page saved",
                hint="choose Figure for a paper in the page's menu, or write --out FILE.html",
            )
        save_figure(draw_scope_figures(read_scope_figures(self.source)), out)
        console.note(f"{self.source}: drawn in {out}")
        return exits.OK

    @cached_property
    def kind(self) -> Kind:
        """What the source is."""
        path = Path(self.source)
        if path.suffix == SUFFIX:
            return "recording"
        if path.name.endswith(_PROGRAM):
            return "program"
        if path.suffix == ".json" and path.is_file():
            return _kind_of_json(path)
        if path.suffix in (".jsonl", ".csv", ".npz") or (path.is_dir() and any(path.glob("*.jsonl"))):
            from volumetric.scope.evolution_view import is_evolution

            if is_evolution(path):
                return "evolution"
            if path.suffix != ".npz":
                return "training"
        return "model"

    def _viewer(self, *, live: bool) -> Viewer:
        """Return the page of the source."""
        kind = self.kind
        if self.others and kind not in ("recording", "training", "model"):
            raise UsageError(f"scope {self.source} compares a {kind} with nothing, got {self.others[0]}")
        if kind != "model":
            self._refuse_rows(f"a {kind} cannot run rows")
        if self.prompt is not None and kind != "model":
            raise UsageError(f"--prompt is for language models; {self.source} is a {kind}")
        match kind:
            case "figure":
                raise UsageError(f"{self.source} has the numbers of a figure", hint="--out FILE.pdf draws it")
            case "recording":
                return self._recording_page()
            case "evolution":
                return self._evolution_page(live=live)
            case "training":
                from volumetric.scope.evolution_view import is_evolution
                from volumetric.scope.training_live import training_viewer

                for other in filter(lambda name: is_evolution(Path(name)), self.others):
                    raise UsageError(f"{other} is a run of evolution, {self.source} one of training")
                return training_viewer(self.source, *self.others, follow=live)
            case "program":
                from volumetric.program import read_program
                from volumetric.scope.network_view import network_view
                from volumetric.scope.openers import page_of_views

                return page_of_views(
                    Path(self.source).name, network_view(read_program(self.source)), source=self.source
                )
            case "genome":
                from volumetric.evolution.genome import Genome

                return Genome.load(self.source).scope()  # pyright: ignore[reportReturnType]  (a Viewer)
            case "model":
                return self._model_page(live=live)

    def _recording_page(self) -> Viewer:
        from volumetric.scope.openers import page_of_views
        from volumetric.scope.recording_view import recording_view

        if len(self.others) > 1:
            raise UsageError(f"two recordings can be compared, got {1 + len(self.others)}")
        recordings = [Recording.open(path) for path in (self.source, *self.others)]
        names = [Path(path).stem for path in (self.source, *self.others)]
        view = recording_view(
            *recordings, names=names if len(set(names)) == len(names) else (self.source, *self.others)
        )
        title = recordings[0].meta.title or describe(recordings[0])
        return page_of_views(title if not self.others else " and ".join(names), view, source=self.source)

    def _evolution_page(self, *, live: bool) -> Viewer:
        from volumetric.scope import Viewer
        from volumetric.scope.evolution_feed import FollowedEvolution
        from volumetric.scope.evolution_view import evolution_view
        from volumetric.scope.openers import page_of_views

        path = Path(self.source)
        if live and path.suffix != ".npz":
            feed = FollowedEvolution(path)
            return Viewer(feed.document(title=path.stem, source=self.source), feed)
        return page_of_views(path.stem, evolution_view(path), source=self.source)

    def _model_page(self, *, live: bool) -> Viewer:
        from volumetric.cli.inspect import is_language_model
        from volumetric.scope.model_views import model_views
        from volumetric.scope.openers import page_of_views

        loaded = self._opened_model()
        runs = self.rows is not None or self.ticks is not None
        if not runs and (is_language_model(loaded) or self.others):
            if len(self.others) > 1:
                raise UsageError(f"a model is compared with one other, got {len(self.others)}")
            with console.progress(f"looking into {loaded.name}…"):
                views = model_views(
                    loaded, self.prompt, self.others[0] if self.others else None, offline=self.files.offline
                )
            return page_of_views(loaded.name, *views, source=self.source)
        if self.others:
            raise UsageError(
                "networks that run rows are compared by their recordings",
                hint="record each with --out A.scope, then volumetric scope A.scope B.scope",
            )
        if self.prompt is not None:
            raise UsageError(f"--prompt is for language models; {self.source} reads rows", hint="add --in FILE")
        return self._network_page(loaded, live=live)

    def _network_page(self, loaded: LoadedModel, *, live: bool) -> Viewer:
        """Return the page of a network: as it is, recorded on its rows, or running behind the page."""
        from volumetric.scope.network_page import network_page, running_page

        machine = machine_of(loaded, self.clocked)
        stopping, log = StopRequest(), RowLog()
        if live:
            with ExitStack() as opened:
                if self.rows is not None:
                    chunks, _ = rows_of(self.rows, None, loaded, self.batch, opened, stopping)
                    for _ in log.logged(standardise_rows(loaded, chunk) for chunk in chunks):
                        pass
            return running_page(
                machine, loaded.params, log.arrays(), rate=self.rate or _RATE, device=self.device, row=self.row,
                edges=self.edges, title=loaded.name, source=self.source,
            )  # fmt: skip
        recording = None
        if self.rows is not None or self.ticks is not None:
            with self._running(stopping, loaded) as (recorder, chunks):
                self._advance(recorder, log.logged(chunks), stopping)
                recorder.close()
                recording = recorder.recording(title=loaded.name, device=self.device, per_row=self.per_row)
        return network_page(
            machine, loaded.params, recording, rows=log.of_stream(self.row), per_row=self.per_row, edges=self.edges,
            title=loaded.name, source=self.source,
        )  # fmt: skip

    @contextmanager
    def _running(self, stopping: StopRequest, loaded: LoadedModel) -> Iterator[tuple[Recorder, Iterator[StreamChunk]]]:
        """Open a recorder of the model, and its rows."""
        from volumetric.clocked import Clocked
        from volumetric.devices.named_devices import open_device
        from volumetric.observe.recorder import Recorder
        from volumetric.run.streams import open_stream

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
            recorder = Recorder(stream, row=self.row, every=self.every, edges=self.edges)
            yield recorder, (standardise_rows(loaded, chunk) for chunk in rows)

    def _advance(self, recorder: Recorder, chunks: Iterator[StreamChunk], stopping: StopRequest) -> None:
        from volumetric.run.streams.stream_chunks import StreamChunk

        with stop_between(stopping, "these rows"), contextlib.suppress(Stopped):
            for chunk in chunks:
                advance(recorder, chunk, self.per_row)
                if stopping.requested:
                    return
            for start in range(0, self.ticks or 0, CHUNK):
                advance(recorder, StreamChunk(x={}, count=min(CHUNK, (self.ticks or 0) - start)), 1)
                if stopping.requested:
                    return

    def _opened_model(self) -> LoadedModel:
        from volumetric.loaders import open_model

        files = self.files
        with console.progress(f"reading {self.source}…"):
            return open_model(
                self.source, files.dtype, offline=files.offline, strict=files.strict, guess=files.guessed()
            )

    def _refuse_rows(self, why: str) -> None:
        if self.rows is not None or self.ticks is not None or self.batch is not None:
            raise UsageError(f"{self.source}: {why}", hint="leave --in, --ticks and --batch out")


def _kind_of_json(path: Path) -> Kind:
    """Return what a JSON file holds, by its first bytes."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError:
        return "model"
    if b'"volumetric.figure"' in start:
        return "figure"
    return "genome" if b'"genome"' in start or b'"connections"' in start else "model"
