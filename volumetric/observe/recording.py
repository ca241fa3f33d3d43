"""Recordings of activity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.hints import path_hint
from volumetric.base.notebook_html import picture_of
from volumetric.base.scope_pages import ScopePage, page_of
from volumetric.observe.recording_file import RecordingMeta, read_recording, write_recording
from volumetric.observe.scene import Scene

SUFFIX: Final = ".scope"
_METER: Final = "meter."
_BY_FRAME: Final = ("node", "odd", "fired", "edge", "reset", "scale")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Recording:
    """Activity of the nodes of a scene, frame by frame. In a notebook it shows itself as a film.

    Attributes
    ----------
    ticks : number of the tick, or row, of each frame, from 1; int64 ``[frames]``
    node : ``255 · min(1, rms / scale)`` of each node with the scale of its group; uint8 ``[frames, nodes]``
    odd : whether a node's output was not finite; bool like `node`
    fired : whether a node computed; bool like `node`
    edge : ``255 ·`` attention or gate of the first edges; uint8 ``[frames, edges]``
    reset : whether the stream was reset; bool ``[frames]``
    scale : scale of each group, in the order of `Scene.groups`; float32 ``[frames, groups]``
    meters : name → float32 ``[frames]``

    Raises
    ------
    CheckpointError : shapes of arrays do not match, ticks do not ascend, or a scale is not a number
    """

    meta: RecordingMeta
    scene: Scene
    ticks: Array
    node: Array
    odd: Array
    fired: Array
    edge: Array
    reset: Array
    scale: F32Array
    meters: Mapping[str, F32Array] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        """Check the shapes."""
        self.scene.check()
        frames, nodes = self.ticks.shape[0] if self.ticks.ndim == 1 else -1, len(self.scene.nodes)
        for name, shape in (
            ("node", (frames, nodes)),
            ("odd", (frames, nodes)),
            ("fired", (frames, nodes)),
            ("reset", (frames,)),
            ("scale", (frames, len(self.scene.groups))),
        ):
            if getattr(self, name).shape != shape:
                raise CheckpointError(f"a recording's {name} must have shape {shape}, has {getattr(self, name).shape}")
        if self.edge.ndim != 2 or len(self.edge) != frames or self.edge.shape[1] > len(self.scene.edges):
            raise CheckpointError(f"a recording's edges must have shape [{frames}, …], have {self.edge.shape}")
        for name, values in self.meters.items():
            if values.shape != (frames,):
                raise CheckpointError(f"a recording's meter {name!r} must have {frames} values, has {values.shape}")
        if frames and (self.ticks[0] < 0 or (self.ticks[1:] <= self.ticks[:-1]).any()):
            raise CheckpointError("a recording's ticks must ascend, from 0 or more")
        if not (np.isfinite(self.scale) & (self.scale >= 0)).all():
            raise CheckpointError("a recording's scales must be finite and not negative")

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.ticks)

    def __repr__(self) -> str:
        title = f" {self.meta.title!r}" if self.meta.title else ""
        return f"<Recording{title}: {len(self)} frames of {len(self.scene.nodes)} nodes>"

    def _repr_html_(self) -> str:
        """Return the film for notebooks: a page in a frame, which plays."""
        return picture_of("recording", self)

    def scope(self, other: Recording | None = None, *, names: Sequence[str] = ()) -> ScopePage:
        """Return a page that plays the recording, or compares it with another one of the same network.

        Examples
        --------
        >>> before.scope(after, names=("before", "after")).save("training.html")  # doctest: +SKIP
        """
        return page_of("recording", self, other=other, names=names)

    def values(self) -> F32Array:
        """Return the root mean square of each node in 255 steps; float32 ``[frames, nodes]``, NaN where odd."""
        scale = self.scale[:, self.scene.group_of]
        return np.where(self.odd, np.nan, self.node / np.float32(255) * scale).astype(np.float32)

    def select(self, frames: slice) -> Recording:
        """Return the recording of some frames, in order.

        A frame says that the stream was reset if it was since the frame before.

        Raises
        ------
        SpecError : the step of `frames` is below 1
        """
        start, stop, step = frames.indices(len(self))
        if step < 1:
            raise SpecError(f"frames of a recording need a step of at least 1, got {step}")
        chosen = np.arange(start, stop, step)
        # a reset in the frames left out belongs to the next one shown
        starts = np.concatenate([[start], chosen[:-1] + 1])[: len(chosen)]
        total = np.concatenate([[0], np.cumsum(self.reset)])
        return replace(
            self,
            meta=msgspec.structs.replace(self.meta, every=self.meta.every * step),
            ticks=self.ticks[frames],
            **{name: getattr(self, name)[frames] for name in _BY_FRAME if name != "reset"},
            reset=total[chosen + 1] > total[starts],
            meters={name: values[frames] for name, values in self.meters.items()},
        )

    def save(self, path: str | Path) -> None:
        """Write a ``.scope`` file atomically.

        Raises
        ------
        CheckpointError : the file cannot be written
        """
        arrays = {"t": self.ticks, **{name: getattr(self, name) for name in _BY_FRAME}}
        arrays |= {_METER + name: values for name, values in self.meters.items()}
        write_atomic(Path(path), write_recording(self.meta, self.scene, arrays))

    @classmethod
    def open(cls, path: str | Path, *, first: int = 0, count: int | None = None) -> Recording:
        """Read a ``.scope`` file and validate it.

        Parameters
        ----------
        first, count : read only these frames, from the first on (0: of the file) and how many (None: all that follow)

        Raises
        ------
        CheckpointError : the file cannot be read, is damaged, of a later version, or too large
        SpecError : `first` or `count` is below 0
        """
        if first < 0 or (count is not None and count < 0):
            raise SpecError(f"frames of a recording start at 0, got first={first}, count={count}")
        where = Path(path)
        try:
            if where.is_dir():
                raise CheckpointError(
                    f"{where} is a directory, not a recording",
                    hint=f"`volumetric scope {where} --in ROWS --out FILE.scope` records a model",
                )
            if not where.is_file():
                raise CheckpointError(f"cannot read {where}: there is no such file", hint=path_hint(where))
            with where.open("rb") as handle:
                meta, scene, arrays = read_recording(handle, first=first, count=count)
            meters = {name.removeprefix(_METER): arrays[name] for name in arrays if name.startswith(_METER)}
            of = {name: arrays[name] for name in _BY_FRAME}
            return cls(meta=meta, scene=scene, ticks=arrays["t"], meters=meters, **of)
        except CheckpointError as error:
            raise CheckpointError(
                f"{where}: {error}" if str(where) not in str(error) else str(error), hint=error.hint
            ) from None
        except OSError as error:
            raise CheckpointError(f"cannot read {where}: {error.strerror or error}", hint=path_hint(where)) from None


def describe(recording: Recording) -> str:
    """Return one line of text about a recording."""
    meta, scene = recording.meta, recording.scene
    return f"{len(recording):,} frames of {len(scene.nodes):,} nodes ({scene.kind}), {meta.title or 'without a title'}"
