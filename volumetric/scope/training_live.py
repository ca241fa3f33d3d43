"""Training runs that go on, behind a page: sends new points, from a watch in this process or from growing files."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from volumetric.base.errors import SpecError
from volumetric.scope.document import ScopeDocument, encode_message
from volumetric.scope.training_files import RunFiles, check_run_files
from volumetric.scope.training_record import TrainingRecord
from volumetric.scope.training_view import (
    Source,
    check_runs,
    record_of,
    sample_tables,
    training_data,
    unique_names,
    view_of,
    weight_tables,
)
from volumetric.scope.training_watch import TrainingWatch
from volumetric.scope.viewer import Viewer

SECONDS: Final = 0.25
"""Seconds between two messages."""


@dataclass(slots=True)
class _Run:
    """A run, and what brings its record up to date; None: it has ended."""

    record: TrainingRecord
    poll: Callable[[], bool] | None = None
    sent_status: tuple[Any, ...] = ()
    inputs_sent: bool = field(default=False)


class TrainingLive:
    """Sends the new points of runs four times a second; a `LiveSource`.

    Parameters
    ----------
    runs : records, and functions that read what is new
    view : name of the view
    """

    def __init__(self, runs: Sequence[_Run], view: str) -> None:
        self._runs, self._view = runs, view
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._revision = 0
        self._send: Callable[[Mapping[str, Any]], None] | None = None
        self._thread: threading.Thread | None = None

    def connect(self, send: Callable[[Mapping[str, Any]], None]) -> None:
        """Begin to send."""
        self._send = send
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="training page", daemon=True)
            self._thread.start()

    def act(self, view: str, action: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return all data for ``{"do": "state"}``, with the number of the last message that they contain.

        Raises
        ------
        SpecError : the action is another one
        """
        if action.get("do") != "state":
            raise SpecError(f"a page of training cannot do {action.get('do')!r:.40}", hint='ask {"do": "state"}')
        with self._lock:
            self._poll()
            data = training_data([run.record for run in self._runs])
            return json.loads(encode_message({"revision": self._revision, "data": data}))

    def close(self) -> None:
        """Send what is left, and stop."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(10)
        self._turn()

    def _work(self) -> None:
        while not self._closed.wait(SECONDS):
            self._turn()

    def _turn(self) -> None:
        with self._lock:
            self._poll()
            changes = [entry for i, run in enumerate(self._runs) if (entry := self._changes(i, run))]
            if not changes or self._send is None:
                return
            self._revision += 1
            self._send({"view": self._view, "revision": self._revision, "runs": changes})

    def _poll(self) -> None:
        for run in self._runs:
            if run.poll is not None:
                run.poll()

    def _changes(self, i: int, run: _Run) -> dict[str, Any]:
        record = run.record
        changed: dict[str, Any] = {}
        if record.restarted:
            record.restarted = run.inputs_sent = False
            record.changes()
            return {"run": i, "restarted": True}
        if points := record.changes():
            changed["points"] = points
        if record.weights.changed:
            record.weights.changed = False
            changed["weights"] = weight_tables(record.weights)
        if record.predictions.changed:
            record.predictions.changed = False
            pictures: list[dict[str, Any]] = []
            changed["samples"] = sample_tables(record, pictures)
            if not run.inputs_sent:
                changed["inputs"] = pictures[0] if pictures else None
                run.inputs_sent = bool(pictures)
        status = (record.status, record.running, len(record.marks), len(record.notes), len(record.settings))
        if changed or status != run.sent_status:
            run.sent_status = status
            facts = {"status": record.status, "running": record.running, "marks": record.marks}
            return {"run": i, **changed, **facts, "notes": [*record.notes], "settings": record.settings}
        return {}


def training_viewer(
    *sources: Source | TrainingWatch,
    names: Sequence[str] | None = None,
    follow: bool = True,
    title: str = "",
    name: str = "training",
) -> Viewer:
    """Return a page of training runs, which goes on while a run goes on.

    Parameters
    ----------
    sources : as of `training_view`, and watches of runs in this process
    names : see `training_view`
    follow : read the files of runs that go on, and of those that are resumed, again and again
    title : title of the page; default: names of the runs

    Raises
    ------
    SpecError, CheckpointError : as of `training_view`

    Examples
    --------
    >>> training_viewer("spirals").serve().address  # doctest: +SKIP
    """
    check_runs(len(sources), names)
    records = [one.record if isinstance(one, TrainingWatch) else one for one in sources]
    used = unique_names(records, names)
    runs: list[_Run] = []
    for source, own in zip(sources, used, strict=True):
        if isinstance(source, TrainingWatch):
            source.record.name, source.record.live = own, True
            runs.append(_Run(source.record, source.drain))
        elif isinstance(source, (str, os.PathLike)):
            runs.append(_followed(Path(source), own, follow=follow))
        else:
            runs.append(_Run(record_of(source, own)))
    view = view_of([run.record for run in runs], name=name)
    text = title or ", ".join(used)
    places = ", ".join(str(source) for source in sources if isinstance(source, (str, os.PathLike)))
    document = ScopeDocument(title=text[:120], source=places or "training", views=(view,))
    live = TrainingLive(runs, name) if any(run.poll for run in runs) else None
    return Viewer(document, live)


def _followed(path: Path, name: str, *, follow: bool) -> _Run:
    record = TrainingRecord(name, live=follow)
    files = RunFiles(path, record)

    def poll() -> bool:
        news = files.poll()
        for sentence in files.damage():
            record.notes[sentence] = None
        if record.running and not files.goes_on():
            record.running, record.status = False, record.status or "no end recorded"
        return news

    poll()
    check_run_files(files)
    record.changes()
    record.restarted = False
    return _Run(record, poll if follow else None)
