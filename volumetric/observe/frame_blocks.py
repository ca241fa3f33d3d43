"""Frames of activity in blocks of bytes, as a recorder stores them while a stream runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.observe.scene import Scene

BLOCK: Final = 256
"""Maximum number of frames of a block."""
_VALUES: Final = 1 << 20  # maximum number of values of a block, if that is more than one frame


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActivityFrame:
    """Activity of all nodes of a scene at one tick.

    Attributes
    ----------
    t : number of the tick or row, from 1
    rms : root mean square of each node's output; float64 ``[nodes]``
    fired : whether each node computed; bool ``[nodes]``
    reset : whether the stream was reset
    edge : attention or gate of the scene's first edges, 0 … 1; for a program 1 if the edge fired; float64, may be
        empty
    """

    t: int
    rms: Array
    fired: Array
    reset: bool
    edge: Array = field(default_factory=lambda: np.zeros(0))


class FrameBlocks:
    """Frames as bytes: about 1.3 bytes for each value, instead of 9 of an `ActivityFrame`.

    The last frames wait as they are. When they fill a block, they become bytes: each group of nodes is scaled by its
    largest finite value in the block.
    """

    def __init__(self, scene: Scene) -> None:
        self._groups, self._group_count = np.array(scene.group_of, np.int64), len(scene.groups)
        self._nodes = len(scene.nodes)
        self._size = max(1, min(BLOCK, _VALUES // max(1, self._nodes)))
        self._blocks: list[dict[str, Array]] = []
        self._waiting: list[ActivityFrame] = []
        self._count = 0

    def __len__(self) -> int:
        """Return the number of frames."""
        return self._count

    def append(self, frame: ActivityFrame) -> None:
        """Store a frame."""
        self._waiting.append(frame)
        self._count += 1
        if len(self._waiting) >= self._size:
            self._blocks.append(self._block(self._waiting))
            self._waiting = []

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of a `Recording` by the names of its fields."""
        blocks = [*self._blocks]
        if self._waiting or not blocks:
            blocks.append(self._block(self._waiting))
        joined = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
        for name in ("odd", "fired"):
            joined[name] = np.unpackbits(joined[name], axis=1, count=self._nodes).view(bool)
        meters = {name: joined.pop(name) for name in ("mean", "count")}
        return {**joined, "meters": {"mean": meters["mean"], "odd": meters["count"]}}

    def frames(self) -> Iterator[ActivityFrame]:
        """Yield all frames; those in full blocks have values in 255 steps of the scale of their group."""
        for block in self._blocks:
            odd, fired = (np.unpackbits(block[name], axis=1, count=self._nodes).view(bool) for name in ("odd", "fired"))
            for i, t in enumerate(block["ticks"].tolist()):
                rms = block["node"][i] / 255 * block["scale"][i].astype(np.float64)[self._groups]
                yield ActivityFrame(
                    t=t,
                    rms=np.where(odd[i], np.nan, rms),
                    fired=fired[i],
                    reset=bool(block["reset"][i]),
                    edge=block["edge"][i] / 255,
                )
        yield from self._waiting

    def _block(self, frames: list[ActivityFrame]) -> dict[str, Array]:
        rms = np.array([frame.rms for frame in frames], np.float64).reshape(len(frames), self._nodes)
        top = scale_of(self._groups, self._group_count, rms.max(0, initial=0.0, where=np.isfinite(rms)))
        node, odd = as_bytes(self._groups, rms, top)
        edge = np.array([frame.edge for frame in frames], np.float64)
        known = np.where(odd, 0.0, rms)
        return {
            "ticks": np.array([frame.t for frame in frames], np.int64),
            "node": node,
            "odd": np.packbits(odd, axis=1),
            "fired": np.packbits(np.array([frame.fired for frame in frames], bool).reshape(node.shape), axis=1),
            "edge": edges_as_bytes(edge.reshape(len(frames), len(frames[0].edge) if frames else 0)),
            "reset": np.array([frame.reset for frame in frames], bool),
            "scale": np.tile(top, (len(frames), 1)),
            "mean": known.mean(1).astype(np.float32),
            "count": odd.sum(1).astype(np.float32),
        }


def scale_of(groups: Array, count: int, largest: Array) -> F32Array:
    """Return the largest value of each of `count` groups, 1 if all are 0.

    Parameters
    ----------
    groups : index of each node's group, ``[nodes]``
    largest : largest finite value of each node, ``[nodes]``
    """
    top = np.zeros(count)
    np.maximum.at(top, groups, largest)
    with np.errstate(over="ignore"):
        scale = np.where(top > 0, top, 1.0).astype(np.float32)
    return np.clip(scale, np.finfo(np.float32).tiny, np.finfo(np.float32).max)


def as_bytes(groups: Array, rms: Array, scale: F32Array) -> tuple[Array, Array]:
    """Return ``255 · min(1, rms / scale)`` for values ``[…, nodes]``, and a mask of values that are not finite."""
    odd = ~np.isfinite(rms)
    part = np.where(odd, 0.0, rms) / scale.astype(np.float64)[groups]
    return np.rint(255 * np.clip(part, 0, 1)).astype(np.uint8), odd


def edges_as_bytes(values: Array) -> Array:
    """Return ``255 · value`` for attention and gates in 0 … 1."""
    return np.rint(255 * np.clip(np.nan_to_num(values), 0, 1)).astype(np.uint8)
