"""An observer that answers HTTP on this machine: aggregates of the last steps as JSON."""

from __future__ import annotations

from volumetric.observe.events import LayerEvent
from volumetric.observe.local_server import LOCALHOST, LocalServer
from volumetric.observe.window import WindowObserver


class HttpObserver:
    """Serves ``GET /`` (aggregates over the window) and ``GET /latest`` (the newest event of each layer).

    Parameters
    ----------
    port : TCP port; 0 takes a free one, see `address`
    window : steps of the aggregates
    host : address to listen on; only this machine can reach the default

    Raises
    ------
    DeviceError
        The port cannot be listened on.
    """

    def __init__(self, port: int = 0, *, window: int = 100, host: str = LOCALHOST) -> None:
        self._window, self._latest = WindowObserver(window), WindowObserver(1)
        pages = {"/": self._window.describe, "/latest": self._latest.describe}
        self._server = LocalServer(pages, port=port, host=host)

    @property
    def address(self) -> str:
        """Where it answers, as ``http://127.0.0.1:40123``."""
        return self._server.address

    def observe(self, event: LayerEvent) -> None:
        """Keep an event."""
        self._window.observe(event)
        self._latest.observe(event)

    def close(self) -> None:
        """Stop listening."""
        self._server.close()
