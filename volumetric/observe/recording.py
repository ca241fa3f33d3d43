"""Recordings of activity, and their files (``.scope``)."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

import msgspec
import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError
from volumetric.base.hints import path_hint
from volumetric.base.notebook_html import picture_of
from volumetric.base.scope_pages import ScopePage, page_of
from volumetric.observe.scene import Scene

FORMAT: Final = "volumetric.scope"
VERSION: Final = 1
SUFFIX: Final = ".scope"
_META, _SCENE, _ACTIVITY = "meta.json", "scene.json", "activity.npz"
_MOST: Final = {_META: 1 << 20, _SCENE: 1 << 25, _ACTIVITY: 1 << 28}
"""Maximum bytes of the parts of a file, unpacked."""
_ARRAYS: Final = 1 << 30  # maximum bytes of all arrays, unpacked
_METER: Final = "meter."


class RecordingMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of a recording.

    Attributes
    ----------
    network : SHA-256 of the network's JSON text
    row : index of the recorded stream; None: all streams together
    every : ticks, or rows, from one frame to the next
    missed : number of ticks after the last frame, which exceeded the limit
    """

    format: str = FORMAT
    version: int = VERSION
    title: str = ""
    network: str = ""
    device: str = ""
    seed: int | None = None
    row: int | None = None
    every: int = 1
    per_row: int = 1
    missed: int = 0


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
    CheckpointError : shapes of arrays do not match
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

    def save(self, path: str | Path) -> None:
        """Write a ``.scope`` file atomically.

        Raises
        ------
        CheckpointError : the file cannot be written
        """
        arrays = {"t": self.ticks, "node": self.node, "edge": self.edge, "reset": self.reset, "scale": self.scale}
        arrays |= {name: np.packbits(getattr(self, name), axis=1) for name in ("odd", "fired")}
        arrays |= {_METER + name: values for name, values in self.meters.items()}
        packed, whole = io.BytesIO(), io.BytesIO()
        np.savez_compressed(packed, allow_pickle=False, **arrays)
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(_META, msgspec.json.encode(self.meta))
            file.writestr(_SCENE, msgspec.json.encode(self.scene))
            file.writestr(_ACTIVITY, packed.getvalue(), zipfile.ZIP_STORED)
        write_atomic(Path(path), whole.getvalue())

    @classmethod
    def open(cls, path: str | Path) -> Recording:
        """Read a ``.scope`` file and validate it.

        Raises
        ------
        CheckpointError : the file cannot be read, is damaged, of a later version, or too large
        """
        where = Path(path)
        try:
            if where.is_dir():
                raise CheckpointError(
                    f"{where} is a directory, not a recording",
                    hint=f"`volumetric scope record {where}` records a model",
                )
            if not where.is_file():
                raise CheckpointError(f"cannot read {where}: there is no such file", hint=path_hint(where))
            with where.open("rb") as handle:
                return cls._read(handle)
        except CheckpointError as error:
            raise CheckpointError(
                f"{where}: {error}" if str(where) not in str(error) else str(error), hint=error.hint
            ) from None
        except OSError as error:
            raise CheckpointError(f"cannot read {where}: {error.strerror or error}", hint=path_hint(where)) from None

    @classmethod
    def _read(cls, handle: IO[bytes]) -> Recording:
        """Return the recording in an open archive; raise `CheckpointError` if a part is missing or invalid."""
        parts = _members(handle, _MOST)
        missing = [name for name in _MOST if name not in parts]
        if missing:
            raise CheckpointError(f"it has no {missing[0]}", hint="this file is not a recording of activity")
        meta, scene = _decode_struct(parts[_META], RecordingMeta, _META), _decode_struct(parts[_SCENE], Scene, _SCENE)
        if meta.format != FORMAT or meta.version != VERSION:
            raise CheckpointError(
                f"it is {meta.format!r}, version {meta.version}", hint=f"expected {FORMAT!r}, version {VERSION}"
            )
        arrays = {name: _array(name, raw) for name, raw in _members(io.BytesIO(parts[_ACTIVITY]), None).items()}
        nodes = len(scene.nodes)
        for name in ("odd", "fired"):
            bits = arrays.get(name)
            if bits is None or bits.dtype != np.uint8 or bits.ndim != 2 or bits.shape[1] != -(-nodes // 8):
                raise CheckpointError(f"{_ACTIVITY} has no bits {name!r} of {nodes} nodes")
            arrays[name] = np.unpackbits(bits, axis=1, count=nodes).astype(bool)
        meters = {name.removeprefix(_METER): arrays.pop(name) for name in list(arrays) if name.startswith(_METER)}
        kinds = {"t": "i", "node": "u", "edge": "u", "odd": "b", "fired": "b", "reset": "b", "scale": "f"}
        for name, kind in kinds.items():
            if name not in arrays or arrays[name].dtype.kind != kind:
                raise CheckpointError(f"{_ACTIVITY} has no array {name!r} of kind {kind!r}")
        if any(of.dtype.kind != "f" for of in meters.values()):
            raise CheckpointError(f"{_ACTIVITY} has meters that are not float32")
        known = {name: arrays[name] for name in kinds if name != "t"}
        return cls(meta=meta, scene=scene, ticks=arrays["t"], meters=meters, **known)


def _members(handle: IO[bytes], limits: Mapping[str, int] | None) -> dict[str, bytes]:
    """Return the files of an archive, those of `limits` or the arrays of an ``.npz`` file, and check their sizes."""
    members: dict[str, bytes] = {}
    left = _ARRAYS
    try:
        with zipfile.ZipFile(handle) as file:
            for entry in file.infolist():
                name = entry.filename if limits is not None else entry.filename.removesuffix(".npy")
                most = left if limits is None else limits.get(name, -1)
                if most < 0:
                    continue  # a part of a later version
                if entry.file_size > most or name in members:
                    raise CheckpointError(f"its part {entry.filename!r} is a duplicate, or larger than {most:,} bytes")
                with file.open(entry) as part:
                    members[name] = part.read(entry.file_size + 1)
                left -= len(members[name])
                if len(members[name]) != entry.file_size:
                    raise CheckpointError(f"its part {entry.filename!r} has another size than its header declares")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise CheckpointError(
            f"it is not a recording, or not whole: {error}",
            hint="pass a .scope file of `volumetric run --record` or `volumetric scope record`",
        ) from None
    return members


def _decode_struct(raw: bytes, to: Any, name: str) -> Any:
    try:
        return msgspec.json.decode(raw, type=to)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise CheckpointError(f"its {name} is invalid: {error}") from None


def _array(name: str, raw: bytes) -> Array:
    """Read an array; its header must match the data, so that no more memory than the data is allocated."""
    part = io.BytesIO(raw)
    try:
        version = np.lib.format.read_magic(part)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(part)
    except (
        ValueError,
        TypeError,
        KeyError,
        SyntaxError,
        EOFError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        raise CheckpointError(f"its array {name!r} is damaged: {error}") from None
    count = 1
    for n in shape:
        count *= n
    if fortran or dtype.str not in ("|u1", "|b1", "<f4", "<i8") or min(shape, default=0) < 0:
        raise CheckpointError(f"its array {name!r} has a dtype that recordings do not have")
    data = raw[part.tell() :]
    if len(data) != count * dtype.itemsize:
        raise CheckpointError(f"its array {name!r} has {len(data)} bytes, its header declares {count * dtype.itemsize}")
    array = np.frombuffer(data, dtype).reshape(shape)
    if dtype.kind == "b":  # bytes other than 0 and 1 are not valid bools
        array = np.frombuffer(data, np.uint8).reshape(shape) != 0
    return array


def describe(recording: Recording) -> str:
    """Return one line of text about a recording."""
    meta, scene = recording.meta, recording.scene
    return f"{len(recording):,} frames of {len(scene.nodes):,} nodes ({scene.kind}), {meta.title or 'without a title'}"
