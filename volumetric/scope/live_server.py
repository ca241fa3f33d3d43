"""Serves a page of the scope to this machine: the page, messages for its views, and actions that it asks for."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from volumetric.base.errors import SpecError
from volumetric.observe.local_server import LocalServer
from volumetric.scope.document import ScopeDocument, encode_message
from volumetric.scope.page import scope_page

WAITING: Final = 256
"""Maximum number of queued messages per viewer; beyond it, the oldest are dropped."""
VIEWERS: Final = 16
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


class LiveServer:
    """Serves a document, and sends messages of a source to all pages.

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
        self._viewers: list[deque[str]] = []
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
        text = encode_message(message)
        with self._changed:
            for waiting in self._viewers:
                waiting.append(text)
                if len(waiting) > WAITING:
                    waiting.popleft()
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
        """Stop what runs, send the queued messages, and stop listening."""
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
        return self._live.act(asked["view"], asked["action"])

    @contextmanager
    def _events(self) -> Iterator[Iterator[str] | None]:
        waiting: deque[str] = deque()
        with self._changed:
            full = len(self._viewers) >= VIEWERS
            if not full:
                self._viewers.append(waiting)
                self._changed.notify_all()
        if full:
            yield None
            return
        try:
            yield self._messages(waiting)
        finally:
            with self._changed:
                self._viewers.remove(waiting)

    def _messages(self, waiting: deque[str]) -> Iterator[str]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: waiting or self._closed, _QUIET)
                if self._closed and not waiting:
                    return
                text = waiting.popleft() if waiting else ""
            yield text
