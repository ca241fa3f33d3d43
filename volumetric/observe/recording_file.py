"""The file of a recording (``.scope``): a zip archive of metadata, the scene, and blocks of frames.

A block is an ``.npz`` file of up to `RecordingMeta.block` frames. Its arrays of nodes are ``[nodes, frames]`` and hold
the differences from one frame to the next, modulo 256, so that they compress well: activity changes slowly.
Version 1 has all frames in one ``activity.npz``, as they are.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

import msgspec
import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError
from volumetric.observe.scene import Scene

FORMAT: Final = "volumetric.scope"
VERSION: Final = 2
_META, _SCENE, _ACTIVITY, _BLOCK = "meta.json", "scene.json", "activity.npz", "blocks/{:06}.npz"
_MOST: Final = {_META: 1 << 20, _SCENE: 1 << 25}
"""Maximum bytes of the parts of a file, unpacked."""
_PACKED: Final = 1 << 28  # maximum bytes of a block, packed
_ARRAYS: Final = 1 << 30  # maximum bytes of all arrays, unpacked
_LONGEST: Final = 1 << 16  # maximum number of frames of a block
_METER: Final = "meter."
_KINDS: Final = {"t": "i", "node": "u", "edge": "u", "odd": "u", "fired": "u", "reset": "b", "scale": "f"}
_DAMAGED: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError,
)  # fmt: skip


class RecordingMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of a recording.

    Attributes
    ----------
    version : of the file it was read from
    network : SHA-256 of the network's JSON text
    row : index of the recorded stream; None: all streams together
    every : ticks, or rows, from one frame to the next
    missed : number of ticks after the last frame, which exceeded the limit
    block : frames of a block of the file
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
    block: int = 256


def write_recording(meta: RecordingMeta, scene: Scene, arrays: Mapping[str, Array]) -> bytes:
    """Return a file of version 2.

    Parameters
    ----------
    arrays : as `read_recording` returns them
    """
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(_META, msgspec.json.encode(msgspec.structs.replace(meta, version=VERSION)))
        file.writestr(_SCENE, msgspec.json.encode(scene))
        for i, at in enumerate(range(0, max(1, len(arrays["t"])), meta.block)):
            block = {name: array[at : at + meta.block] for name, array in arrays.items()}
            block |= {name: _differences(block[name]) for name in ("node", "edge")}
            block |= {name: np.ascontiguousarray(np.packbits(block[name].T, axis=1)) for name in ("odd", "fired")}
            packed = io.BytesIO()
            np.savez_compressed(packed, allow_pickle=False, **block)
            file.writestr(_BLOCK.format(i), packed.getvalue(), zipfile.ZIP_STORED)
    return whole.getvalue()


def read_recording(
    handle: IO[bytes], *, first: int = 0, count: int | None = None
) -> tuple[RecordingMeta, Scene, dict[str, Array]]:
    """Return what a file holds, after checks of everything but the shapes that `Recording` checks.

    Only the blocks with the frames asked for are read.

    Parameters
    ----------
    first, count : the first frame, and how many; None: all that follow

    Returns
    -------
    metadata, scene, and the arrays ``t``, ``node``, ``odd``, ``fired``, ``edge``, ``reset``, ``scale`` and
    ``meter.NAME``, each ``[frames, …]``

    Raises
    ------
    CheckpointError : a part is missing or invalid, the version is unknown, or the file is too large
    """
    with _opened(handle) as file:
        entries = _entries(file)
        for name in _MOST:
            if name not in entries:
                raise CheckpointError(f"it has no {name}", hint="this file is not a recording of activity")
        meta = _decode_struct(_part(file, entries[_META], _MOST[_META]), RecordingMeta, _META)
        if meta.format != FORMAT or meta.version not in (1, VERSION):
            raise CheckpointError(
                f"it is {meta.format!r}, version {meta.version}", hint=f"expected {FORMAT!r}, version 1 to {VERSION}"
            )
        scene = _decode_struct(_part(file, entries[_SCENE], _MOST[_SCENE]), Scene, _SCENE)
        old = meta.version == 1
        if not 1 <= meta.block <= _LONGEST:
            raise CheckpointError(f"its blocks have {meta.block:,} frames, expected 1 to {_LONGEST:,}")
        names = [_ACTIVITY] if old else _block_names(entries)
        if names[0] not in entries:
            raise CheckpointError(f"it has no {names[0]}", hint="this file is not a recording of activity")
        start = 0 if old else min(first // meta.block, len(names) - 1)
        stop = None if old or count is None else max(start + 1, -(-(first + count) // meta.block))
        left, blocks = _ARRAYS, list[dict[str, Array]]()
        for i, name in enumerate(names[start:stop]):
            arrays = _arrays(_part(file, entries[name], _PACKED), left)
            left -= sum(array.nbytes for array in arrays.values())
            blocks.append(_frames(arrays, name, len(scene.nodes), old=old))
            if not old and len(blocks[-1]["t"]) != meta.block and start + i + 1 != len(names):
                raise CheckpointError(f"its {name} has {len(blocks[-1]['t'])} frames, expected {meta.block}")
    if any(block.keys() != blocks[0].keys() for block in blocks) or any(
        len({block[name].shape[1:] for block in blocks}) > 1 for name in blocks[0]
    ):
        raise CheckpointError("its blocks do not have the same arrays")
    joined = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    some = slice(first - start * meta.block, None)
    joined = {name: array[some][:count] for name, array in joined.items()} if first or count is not None else joined
    return meta, scene, joined


def _block_names(entries: Mapping[str, zipfile.ZipInfo]) -> list[str]:
    """Return the names of all blocks in order, of which there is at least one."""
    count = sum(name.startswith("blocks/") for name in entries)
    names = [_BLOCK.format(i) for i in range(max(1, count))]
    missing = [name for name in names if name not in entries]
    if missing:
        raise CheckpointError(f"it has no {missing[0]}", hint="this file is not whole, or not a recording of activity")
    return names


def _differences(values: Array) -> Array:
    """Return ``[nodes, frames]``: the first of each row, then the differences modulo 256, of ``[frames, nodes]``."""
    rows = np.array(values.T, order="C")
    rows[:, 1:] -= values.T[:, :-1]
    return rows


def _frames(arrays: dict[str, Array], name: str, nodes: int, *, old: bool) -> dict[str, Array]:
    """Return the arrays of a block, each ``[frames, …]``, or raise `CheckpointError`."""
    for key, kind in _KINDS.items():
        if key not in arrays or arrays[key].dtype.kind != kind:
            raise CheckpointError(f"{name} has no array {key!r} of kind {kind!r}")
    frames = len(arrays["t"]) if arrays["t"].ndim == 1 else -1
    for key in ("node", "edge"):
        if arrays[key].ndim != 2 or arrays[key].shape[0 if old else 1] != frames:
            raise CheckpointError(f"{name}: {key} has shape {arrays[key].shape}, there are {frames} frames")
        if not old:
            arrays[key] = np.ascontiguousarray(np.cumsum(arrays[key], axis=1, dtype=np.uint8).T)
    for key in ("odd", "fired"):
        shape, along = ((frames, -(-nodes // 8)), nodes) if old else ((nodes, -(-frames // 8)), frames)
        if arrays[key].shape != shape or arrays["node"].size != frames * nodes:
            raise CheckpointError(f"{name} has no bits {key!r} of {frames} frames of {nodes} nodes")
        bits = np.unpackbits(arrays[key], axis=1, count=along).view(bool)
        arrays[key] = bits if old else np.ascontiguousarray(bits.T)
    known = {key: array for key, array in arrays.items() if key in _KINDS or key.startswith(_METER)}
    for key, array in known.items():
        if key.startswith(_METER) and array.dtype.kind != "f":
            raise CheckpointError(f"{name} has meters that are not float32")
        if array.ndim < 1 or len(array) != frames:
            raise CheckpointError(f"{name}: {key} has shape {array.shape}, there are {frames} frames")
    return known


@contextmanager
def _opened(handle: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open an archive; what its damage raises while it is open becomes `CheckpointError`."""
    try:
        with zipfile.ZipFile(handle) as file:
            yield file
    except _DAMAGED as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"it is not a recording, or not whole: {error}",
            hint="pass a .scope file of `volumetric run --record` or `volumetric scope --out`",
        ) from None


def _entries(file: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    entries = {entry.filename: entry for entry in file.infolist()}
    if len(entries) != len(file.infolist()):
        raise CheckpointError("one of its parts is a duplicate")
    return entries


def _part(file: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytes:
    """Return the bytes of a part, of which there are as many as its header declares and at most `most`."""
    if entry.file_size > most:
        raise CheckpointError(f"its part {entry.filename!r} is larger than {most:,} bytes")
    with file.open(entry) as part:
        data = part.read(entry.file_size + 1)
    if len(data) != entry.file_size:
        raise CheckpointError(f"its part {entry.filename!r} has another size than its header declares")
    return data


def _arrays(raw: bytes, left: int) -> dict[str, Array]:
    """Return the arrays of an ``.npz`` file of at most `left` bytes, unpacked."""
    arrays: dict[str, Array] = {}
    with _opened(io.BytesIO(raw)) as file:
        for filename, entry in _entries(file).items():
            data = _part(file, entry, left)
            left -= len(data)
            arrays[filename.removesuffix(".npy")] = _array(filename, data)
    return arrays


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
