"""Frames of a running stream as messages to the page that shows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.observe.frame_blocks import ActivityFrame, as_bytes, edges_as_bytes, scale_of
from volumetric.observe.scene import Scene


class LiveFrames:
    """Turns frames of a scene into messages; the scale of each group of nodes is its largest value so far.

    Parameters
    ----------
    view : name of the view that shows the scene

    Examples
    --------
    >>> frames = LiveFrames(recorder.scene)  # doctest: +SKIP
    >>> recorder.tell = lambda frame: server.send(frames.message(frame))  # doctest: +SKIP
    """

    def __init__(self, scene: Scene, view: str = "network") -> None:
        self.view: str = view
        self._groups, self._group_count = np.array(scene.group_of, np.int64), len(scene.groups)
        self._largest = np.zeros(len(scene.nodes))

    def message(self, frame: ActivityFrame) -> dict[str, Any]:
        """Return ``{"view", "kind": "frame", "t", "node", "odd", "fired", "edge", "reset", "scale"}``.

        `node` has ``255 · min(1, rms / scale)`` for each node, `odd` (not finite) and `fired` a bit, `edge` a byte for
        each edge with a value; `scale` is float32 for each group.
        """
        self._largest = np.fmax(self._largest, np.where(np.isfinite(frame.rms), frame.rms, 0.0))
        scale = scale_of(self._groups, self._group_count, self._largest)
        node, odd = as_bytes(self._groups, frame.rms, scale)
        return {
            "view": self.view,
            "kind": "frame",
            "t": frame.t,
            "node": node,
            "odd": np.packbits(odd),
            "fired": np.packbits(frame.fired),
            "edge": edges_as_bytes(frame.edge),
            "reset": frame.reset,
            "scale": scale,
        }
