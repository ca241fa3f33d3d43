"""Runs of evolution that go on: what a page gets of them, generation by generation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from volumetric.base.errors import SpecError, VolumetricError
from volumetric.evolution.genealogy import REQUESTS
from volumetric.evolution.history_file import HistoryLines
from volumetric.evolution.reporters import Event
from volumetric.scope.document import ScopeDocument, ScopeView
from volumetric.scope.evolution_rows import EvolutionRows
from volumetric.scope.evolution_view import HISTORY, message_rows, view_of_rows

_PAUSE: Final = 0.1  # seconds between messages
_AT_ONCE: Final = 200
"""Generations in a message at most; a page asks for the others."""


class _Feed:
    """Sends new rows to pages from a thread of its own, so that nothing waits for a page.

    A message is ``{"view", "from", "rows", "running"}``; a page that lacks rows before ``from`` asks for them by the
    action ``{"do": "rows", "from": …}``.
    """

    def __init__(self, name: str, label: str) -> None:
        self.name, self.label = name, label
        self._rows = EvolutionRows()
        self._running = True
        self._reset = False
        self._sent = 0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._send: Callable[[Mapping[str, Any]], None] | None = None

    def view(self) -> ScopeView:
        """Return the view with the generations so far."""
        return view_of_rows(self._rows, name=self.name, label=self.label, running=self._running)

    def document(self, title: str = "evolution", source: str = "a run that goes on") -> ScopeDocument:
        """Return a document with this view alone."""
        return ScopeDocument(title=title, source=source, views=(self.view(),))

    def connect(self, send: Callable[[Mapping[str, Any]], None]) -> None:
        """Take the function that sends, and begin."""
        self._send = send
        if self._running:
            self._begin()

    def act(self, view: str, action: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return rows from a place on, and whether the run goes on."""
        start = action.get("from")
        if action.get("do") != "rows" or not isinstance(start, int) or isinstance(start, bool) or start < 0:
            raise SpecError('a run answers {"do": "rows", "from": number of rows}')
        rows = self._rows.rows(start)[:_AT_ONCE]
        return {"from": start, "rows": message_rows(rows), "total": len(self._rows), "running": self._running}

    def close(self) -> None:
        """Send what is new and that the run has ended, and stop the thread."""
        self._running = False
        self._closed.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _begin(self) -> None:
        if self._send is None or self._thread is not None:
            return
        self._closed.clear()
        self._thread = threading.Thread(target=self._work, name="evolution feed", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        """Look for new rows, where they do not come by themselves."""

    def _work(self) -> None:
        closed = False
        while not closed:
            closed = self._closed.wait(_PAUSE)
            self._look()
            if self._reset:
                self._reset, self._sent = False, 0
                self._tell({"reset": True, "from": 0, "rows": []})
            total = len(self._rows)
            if total > self._sent or closed:
                start = max(self._sent, total - _AT_ONCE)
                self._tell({"from": start, "rows": self._rows.rows(start)})
                self._sent = total

    def _tell(self, message: Mapping[str, Any]) -> None:
        if self._send is not None:
            self._send({"view": self.name, "running": self._running, **message})


class EvolutionFeed(_Feed):
    """A reporter that shows its run on a page while it goes on.

    It is what runs behind the page, too::

        feed = EvolutionFeed()
        server = Viewer(feed.document(), feed).serve()
        evolve("xor", reporters=[feed])

    Parameters
    ----------
    name, label : of the view
    """

    requests = REQUESTS

    def __init__(self, *, name: str = "evolution", label: str = "Evolution") -> None:
        super().__init__(name, label)

    def start(self, step: int, epoch: int) -> None:
        """Begin, or go on: drop the generations that will be reported again."""
        before = len(self._rows)
        self._rows.drop_from(epoch)
        self._reset = self._reset or len(self._rows) < before
        self._running = True
        self._begin()

    def report(self, event: Event, /) -> None:
        """Take an event; never waits for a page."""
        self._rows.add(event)


class FollowedEvolution(_Feed):
    """A run of another process, followed by the history that it writes.

    Parameters
    ----------
    path : the directory of ``volumetric evolve``, or its history
    name, label : of the view

    Raises
    ------
    CheckpointError : the history cannot be read
    """

    def __init__(self, path: str | Path, *, name: str = "evolution", label: str = "Evolution") -> None:
        super().__init__(name, label)
        where = Path(path)
        self._lines = HistoryLines(where / HISTORY if where.is_dir() else where)
        self._rows.add_all(self._lines.read())

    def _look(self) -> None:
        try:
            if self._lines.replaced():
                self._rows.drop_from(0)
                self._reset = True
            self._rows.add_all(self._lines.read())
        except VolumetricError as error:
            self._tell({"failure": str(error), "from": len(self._rows), "rows": []})
            self._running = False
            self._closed.set()
