"""Serves a page of the scope to this machine: the page, messages for its views, and actions that it asks for."""

from __future__ import annotations

import base64
import io
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, runtime_checkable

from volumetric.base.errors import SpecError
from volumetric.observe.local_server import LocalServer
from volumetric.scope.document import ScopeDocument, encode_message
from volumetric.scope.page import scope_page

WAITING: Final = 256
"""Maximum number of queued messages per page. Beyond it the oldest frame is dropped, or, without one, the oldest."""
VIEWERS: Final = 16
"""Maximum number of pages."""
FRAME: Final = "frame"
"""Kind of messages that may be dropped: each shows a moment, and the next one shows another."""
_QUIET: Final = 5.0  # seconds without a message until a viewer gets a comment, to detect whether it is still connected


class LiveSource(Protocol):
    """What runs behind a page."""

    def connect(self, send: Callable[[Mapping[str, Any]], None]) -> None:
        """Take the function that sends messages; each names its view: ``{"view": NAME, …}``, arrays are allowed."""
        ...

    def act(self, view: str, action: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do what a page asks, and return JSON data. A `VolumetricError` is shown as its sentence."""
        ...

    def close(self) -> None:
        """Stop what runs."""
        ...


@runtime_checkable
class HasSnapshot(Protocol):
    """A `LiveSource` that tells a page that connects, or connects again, how things stand."""

    def snapshot(self) -> Sequence[Mapping[str, Any]]:
        """Return the messages that a page gets before all others, such as one of the kind ``"snapshot"``."""
        ...


class _Waiting:
    """Queued messages of one page, each with whether it may be dropped."""

    def __init__(self) -> None:
        self._messages: deque[tuple[str, bool]] = deque()

    def __bool__(self) -> bool:
        return bool(self._messages)

    def append(self, text: str, *, may_drop: bool) -> None:
        """Append a message; if there are too many, drop one."""
        self._messages.append((text, may_drop))
        if len(self._messages) <= WAITING:
            return
        frame = next((i for i, (_, drops) in enumerate(self._messages) if drops), 0)
        del self._messages[frame]

    def append_first(self, texts: Sequence[str]) -> None:
        """Insert messages before all others."""
        self._messages.extendleft((text, False) for text in reversed(texts))

    def take(self) -> str:
        """Remove the first message and return it; empty if there is none."""
        return self._messages.popleft()[0] if self._messages else ""


class LiveServer:
    """Serves a document, and sends messages of a source to all pages.

    A slow page does not hold up the source: its messages wait in a queue of limited length.

    Parameters
    ----------
    port : TCP port; 0 takes a free one

    Raises
    ------
    DeviceError : the port cannot be listened on
    """

    def __init__(self, document: ScopeDocument, live: LiveSource | None = None, *, port: int = 0) -> None:
        self._token = secrets.token_urlsafe(16)
        self._live = live
        self._changed = threading.Condition()
        self._viewers: list[_Waiting] = []
        self._closed = False
        page = scope_page(document, live=self._token if live is not None else None)
        self._server = LocalServer(
            {}, {"/events": self._events}, texts={"/": page}, actions={"/act": self._act}, port=port, token=self._token
        )
        if live is not None:
            live.connect(self.send)

    @property
    def address(self) -> str:
        """URL of the page, with its token."""
        return f"{self._server.address}/?token={self._token}"

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message for all pages, without waiting."""
        with self._changed:
            if not self._viewers:
                return
        text, may_drop = encode_message(message), message.get("kind") == FRAME
        with self._changed:
            for waiting in self._viewers:
                waiting.append(text, may_drop=may_drop)
            self._changed.notify_all()

    @property
    def viewer_count(self) -> int:
        """Number of connected pages."""
        with self._changed:
            return len(self._viewers)

    def wait_for_viewers(self, seconds: float) -> bool:
        """Wait at most `seconds` until a page is connected; return whether one is."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._viewers), seconds)

    def close(self) -> None:
        """Stop what runs, send the queued messages, and stop listening; pages that do not take them are cut off."""
        if self._live is not None:
            self._live.close()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.close()

    def _act(self, asked: Any) -> Mapping[str, Any]:
        if self._live is None:
            raise SpecError("nothing runs behind this page")
        if (
            not isinstance(asked, dict)
            or not isinstance(asked.get("view"), str)
            or not isinstance(asked.get("action"), dict)
        ):
            raise SpecError('an action is {"view": NAME, "action": {…}}')
        if (asked["view"], asked["action"].get("do")) == ("scope", "figure"):
            return _figure(asked["action"])
        return self._live.act(asked["view"], asked["action"])

    @contextmanager
    def _events(self) -> Iterator[Iterator[str] | None]:
        waiting = _Waiting()
        with self._changed:
            full = len(self._viewers) >= VIEWERS
            if not full:
                self._viewers.append(waiting)
                self._changed.notify_all()
        if full:
            yield None
            return
        try:
            if isinstance(self._live, HasSnapshot):
                first = [encode_message(message) for message in self._live.snapshot()]
                with self._changed:
                    waiting.append_first(first)
            yield self._messages(waiting)
        finally:
            with self._changed:
                self._viewers.remove(waiting)

    def _messages(self, waiting: _Waiting) -> Iterator[str]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: waiting or self._closed, _QUIET)
                if self._closed and not waiting:
                    return
                text = waiting.take()
            yield text


def _figure(content: Mapping[str, Any]) -> dict[str, str]:
    """Return what a page shows as a PDF, in base64; raises `VolumetricError` without Matplotlib, or for other data."""
    from volumetric.viz.scope_figure import draw_scope_figures, scope_figures

    out = io.BytesIO()
    draw_scope_figures(scope_figures({key: value for key, value in content.items() if key != "do"})).savefig(
        out, format="pdf"
    )
    return {"pdf": base64.b64encode(out.getvalue()).decode()}
