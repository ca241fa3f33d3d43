"""Messages of a sculpted stream to pages: frames as bytes, and what has changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.observe.recorder import ActivityFrame
from volumetric.scope.live_frames import LiveFrames
from volumetric.scope.sculpting.sculpted_stream import SculptedStream


class FrameMessages:
    """Frames as messages of `LiveFrames`, with the difference from the twin.

    Parameters
    ----------
    view : name of the view that shows them
    """

    def __init__(self, sculpted: SculptedStream, view: str) -> None:
        scene = sculpted.origin.scene
        self._frames, self._groups = LiveFrames(scene, view), np.array(scene.group_of, np.int64)

    def message(self, frame: ActivityFrame, twin: Array | None) -> dict[str, Any]:
        """Return the message of a frame.

        `difference` is the strength of each node less that in the twin, divided by the scale of its group; NaN where
        either is not finite.
        """
        message = self._frames.message(frame)
        if twin is not None:
            with np.errstate(invalid="ignore", over="ignore"):
                part = (frame.rms - twin) / message["scale"].astype(np.float64)[self._groups]
                message["difference"] = part.astype(np.float16)
        return message


def structure_data(sculpted: SculptedStream) -> dict[str, Any]:
    """Return which nodes are masked, and the edges of the scene with those that were added; 0 marks a cut edge."""
    changes, scene = sculpted.changes, sculpted.origin.scene
    kinds = list(dict.fromkeys([*(edge.kind for edge in scene.edges), "added"]))
    added = [(edge.source, edge.target, kinds.index("added"), edge.delay or 0) for edge in changes.added]
    rows = [(edge.source, edge.target, kinds.index(edge.kind), edge.delay) for edge in scene.edges] + added
    table = np.array(rows, np.int64).reshape(-1, 4)
    there = [(edge.source, edge.target) not in changes.cut for edge in scene.edges] + [True] * len(added)
    living = np.ones(len(scene.nodes), np.uint8)
    living[sorted(changes.masked)] = 0
    return {
        "mask": living,
        "edges": {
            "source": table[:, 0].astype(np.uint32),
            "target": table[:, 1].astype(np.uint32),
            "kind": table[:, 2].astype(np.uint8),
            "delay": table[:, 3].astype(np.int32),
            "kinds": kinds,
        },
        "edgeMask": np.array(there, np.uint8),
        "changedEdges": bool(changes.cut or changes.added),
    }


def inputs_data(sculpted: SculptedStream) -> dict[str, Any]:
    """Return the clamps of inputs, and the names of saved states."""
    changes = sculpted.changes
    return {
        "clamps": {name: list(values) for name, values in changes.clamps.items()},
        "saved": sculpted.saved_names,
        "twin": sculpted.has_twin,
    }


def sculpt_data(sculpted: SculptedStream) -> dict[str, Any]:
    """Return what the panel of a page needs to know of a stream, and that does not change."""
    origin, source = sculpted.origin, sculpted.source
    columns = [
        {"name": of.name, "size": of.size, "ids": of.dtype == "int32", "most": of.most}
        for of in source.columns.values()
    ]
    kind = "program" if origin.program is not None else "fabric" if origin.fabrics else "layers"
    return {
        "kind": kind,
        "ticking": origin.network is not origin.machine,
        "inputs": columns,
        "populations": dict(origin.scene.populations),
        "source": source.label,
    }
