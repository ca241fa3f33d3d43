"""Live activity for viewers on this machine: the scene once, then a frame for each tick."""

from __future__ import annotations

import base64
import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import numpy as np

from volumetric.base._typing import Array
from volumetric.observe.frame_blocks import ActivityFrame, as_bytes, edges_as_bytes, scale_of
from volumetric.observe.local_server import LOCALHOST, LocalServer
from volumetric.observe.scene import Scene

WAITING: Final = 256
"""Maximum number of queued frames per viewer; beyond it, the oldest are dropped."""
VIEWERS: Final = 16
_QUIET: Final = 5.0  # seconds without a frame until a viewer gets a comment, to detect whether it is still connected


class _Viewer:
    """Queued frames of one viewer, and the number of dropped ones."""

    def __init__(self) -> None:
        self.waiting: deque[dict[str, Any]] = deque()
        self.dropped = 0


class ActivityServer:
    """Serves ``GET /scene``, ``GET /ticks`` (server-sent events with one frame each), and an optional page.

    A frame is ``{"t", "node", "odd", "fired", "edge", "reset", "scale", "meters", "dropped"}``: `node` has a byte for
    each node, ``255 · min(1, rms / scale)``, `odd` (not finite) and `fired` a bit, most significant first, `edge` a
    byte for each edge with a value, all in base64; `scale` is the largest value of each group so far; `dropped` how
    many frames before this one the viewer has missed because it was too slow.

    Parameters
    ----------
    port : TCP port; 0 takes a free one, see `address`
    host : address to listen on; only this machine can reach the default
    page : HTML for ``GET /``, for example of `volumetric.viz.live_page`; None: no page

    Raises
    ------
    DeviceError
        The port cannot be listened on.
    """

    def __init__(self, scene: Scene, port: int = 0, *, host: str = LOCALHOST, page: str | None = None) -> None:
        self._scene, self._largest = scene, np.zeros(len(scene.nodes))
        self._groups = np.array(scene.group_of, np.int64)
        self._changed = threading.Condition()
        self._viewers: list[_Viewer] = []
        self._closed = False
        self._server = LocalServer(
            {"/scene": lambda: msgspec.to_builtins(scene)},
            {"/ticks": self._events},
            texts={} if page is None else {"/": page},
            port=port,
            host=host,
        )

    @property
    def address(self) -> str:
        """URL of the server, such as ``http://127.0.0.1:40123``."""
        return self._server.address

    def push(self, frame: ActivityFrame) -> None:
        """Queue a frame for all viewers, without waiting."""
        self._largest = np.maximum(self._largest, np.where(np.isfinite(frame.rms), frame.rms, 0.0))
        if not self._viewers:
            return
        scale = scale_of(self._groups, len(self._scene.groups), self._largest)
        node, odd = as_bytes(self._groups, frame.rms, scale)
        message = {
            "t": frame.t,
            "node": _text(node),
            "odd": _text(np.packbits(odd)),
            "fired": _text(np.packbits(frame.fired)),
            "edge": _text(edges_as_bytes(frame.edge)),
            "reset": frame.reset,
            "scale": dict(zip(self._scene.groups, scale.tolist(), strict=True)),
            "meters": {"mean": float(np.where(odd, 0.0, frame.rms).mean()), "odd": int(odd.sum())},
        }
        with self._changed:
            for viewer in self._viewers:
                viewer.waiting.append(message)
                if len(viewer.waiting) > WAITING:
                    viewer.waiting.popleft()
                    viewer.dropped += 1
            self._changed.notify_all()

    def wait_for_viewers(self, seconds: float) -> bool:
        """Wait at most `seconds` until a viewer is connected; return whether one is."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._viewers), seconds)

    def drained(self, seconds: float) -> bool:
        """Wait at most `seconds` until all queues are empty; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not any(viewer.waiting for viewer in self._viewers), seconds)

    @contextmanager
    def _events(self) -> Iterator[Iterator[str] | None]:
        viewer = _Viewer()
        with self._changed:
            full = len(self._viewers) >= VIEWERS
            if not full:
                self._viewers.append(viewer)
                self._changed.notify_all()
        if full:
            yield None
            return
        try:
            yield self._frames(viewer)
        finally:
            with self._changed:
                self._viewers.remove(viewer)
                self._changed.notify_all()

    def _frames(self, viewer: _Viewer) -> Iterator[str]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: viewer.waiting or self._closed, _QUIET)
                if self._closed and not viewer.waiting:
                    return
                message = None if not viewer.waiting else {**viewer.waiting.popleft(), "dropped": viewer.dropped}
                viewer.dropped = 0 if message else viewer.dropped
                self._changed.notify_all()
            yield "" if message is None else json.dumps(message)

    def close(self) -> None:
        """Send the queued frames, and stop listening."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.close()


def _text(numbers: Array) -> str:
    return base64.b64encode(numbers.tobytes()).decode()
