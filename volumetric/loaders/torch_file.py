"""Tensors of torch's files (``.pt``, ``.pth``, ``.bin``, ``.ckpt``), read without torch and without running code.

``torch.save`` writes one of two formats. Since torch 1.6 it is a zip archive: ``data.pkl`` is a pickle in which tensors
are views of storages, and ``data/0``, ``data/1``, … are the bytes of the storages, not compressed. Before, and with
``_use_new_zipfile_serialization=False``, it is five pickles one behind the other (magic number, version, system, value,
storage keys), then each storage as a 64-bit count and its bytes. `torch_pickle` reads the pickles; this module checks
every view against the bytes of its storage, and gives them as views of the mapped file.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed, Scheme
from volumetric.loaders.mapped_file import MappedFile
from volumetric.loaders.safetensors import host_of_tag, pack_array, scheme_of_tag
from volumetric.loaders.tensor_source import TensorEntry
from volumetric.loaders.torch_names import StorageRef, TensorView
from volumetric.loaders.torch_pickle import read_pickle

TORCH_SUFFIXES: Final = (".pt", ".pth", ".bin", ".ckpt")
"""Suffixes of files that torch.save writes."""
WEIGHT_PARTS: Final = ("state_dict", "model_state_dict", "model", "module", "net", "network", "weights", "params")
"""Names under which training scripts save a state dict beside other things, the most common first."""
MAX_TENSORS: Final = 1_000_000
MAX_DEPTH: Final = 32
SMALL: Final = 1 << 20
"""Bytes up to which a tensor may repeat elements of a smaller storage (``expand``); beyond, it must fit the file."""
_MAGIC: Final = 0x1950A86A20F9469CFC6C
"""First value of the older format."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    view: TensorView
    start: int


class TorchFile:
    """One file of ``torch.save``, fully checked when opened and read tensor by tensor.

    Parameters
    ----------
    path : path-like
    part : the entry of a checkpoint that has the weights, ``"model_state_dict"``, with dots for inner ones; empty: the
        whole file if it is a state dict, else its entry with one of the names `WEIGHT_PARTS`, else the only entry with
        tensors

    Attributes
    ----------
    entries : mapping of name to `TensorEntry`, in file order; names of nested dicts are joined by points
    part : the entry that was read

    Raises
    ------
    CheckpointError
        The file is damaged, holds more than tensors and plain values, or several of its entries may be the weights.
    """

    __slots__ = ("_file", "_tensors", "entries", "part")

    def __init__(self, path: str | os.PathLike[str], part: str = "") -> None:
        self._file = MappedFile(path)
        where = str(self._file.path)
        try:
            value, starts = self._read(where)
            self.part, chosen = _choose(value, part, where)
            tensors = dict(_flatten(chosen))
            if not tensors:
                raise CheckpointError("it has no tensors", hint="torch.save(model.state_dict(), path) writes weights")
            self._tensors = {name: self._checked(name, view, starts) for name, view in tensors.items()}
        except CheckpointError as error:
            text = str(error)
            raise CheckpointError(text if where in text else f"{where}: {text}", hint=error.hint) from error.__cause__
        self.entries = {name: self._entry_of(name, tensor) for name, tensor in self._tensors.items()}

    def array(self, name: str) -> Array:
        """Return one tensor as a read-only array of its host type, a view of the mapped file where that is possible."""
        entry = self._entry(name)
        view, start = self._tensors[name].view, self._tensors[name].start
        host = host_of_tag(view.tag)
        if not prod(view.shape):
            return np.empty(view.shape, host)
        nbytes = _extent(view) * host.itemsize
        bits = np.dtype(f"V{host.itemsize}")  # as_strided does not know the float types of 8 bits
        flat = self._file.view(start, start + nbytes).view(bits)
        strides = tuple(step * host.itemsize for step in view.strides)
        array = np.lib.stride_tricks.as_strided(flat, entry.shape, strides, writeable=False)
        return np.ascontiguousarray(array).reshape(entry.shape).view(host)

    def scheme(self, name: str) -> Scheme:
        """Return the scheme of the result of `packed`; raise `CheckpointError` if elements are no real numbers."""
        return scheme_of_tag(self._entry(name).type, f"{self._file.path}: tensor {name!r}")

    def packed(self, name: str) -> Packed:
        """Return one tensor in stored form."""
        return pack_array(self.array(name), self.scheme(name))

    def packed_rows(self, name: str, start: int, stop: int) -> Packed:
        """Return rows ``start:stop`` of one tensor in stored form, ``[stop - start, k]``."""
        array, scheme = self.array(name), self.scheme(name)
        return pack_array(array.reshape(-1, array.shape[-1])[start:stop], scheme)

    def release(self, name: str) -> None:
        """Allow the system to drop the mapped pages of one tensor; it can be read again."""
        entry = self._entry(name)
        self._file.release(entry.start, entry.stop)

    def _entry(self, name: str) -> TensorEntry:
        if name not in self.entries:
            raise CheckpointError(
                f"{self._file.path} has no tensor {name!r}", hint=f"it has {len(self.entries)} others"
            )
        return self.entries[name]

    def _entry_of(self, name: str, tensor: _Tensor) -> TensorEntry:
        view, start = tensor.view, tensor.start
        stop = start + prod(view.shape) * host_of_tag(view.tag).itemsize
        return TensorEntry(name=name, type=view.tag, shape=view.shape, start=start, stop=stop)

    def _read(self, where: str) -> tuple[Any, Mapping[str, tuple[int, int]]]:
        """Return the value of the file, and the first byte and the bytes of each storage."""
        head = bytes(self._file.buffer[:4])
        if head == b"PK\x03\x04":
            return self._read_zip(where)
        if head[:1] == b"\x80":
            return self._read_pickles(where)
        raise CheckpointError(
            f"{where} was not written by torch.save: it is neither a zip archive nor a pickle",
            hint="a TensorFlow checkpoint also ends in .ckpt; save the weights as .npz or .safetensors",
        )

    def _read_zip(self, where: str) -> tuple[Any, Mapping[str, tuple[int, int]]]:
        """Read the zip format: a pickle, and a member for each storage."""
        try:
            with zipfile.ZipFile(self._file.path) as archive:
                members = {member.filename: member for member in archive.infolist()}
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise CheckpointError(f"{where} is no complete zip archive: {error}", hint="download it again") from None
        tops = [name.removesuffix("data.pkl") for name in members if name.endswith("/data.pkl") or name == "data.pkl"]
        if len(tops) != 1:
            raise CheckpointError(f"{where} is a zip archive, but has no data.pkl of torch.save")
        (top,) = tops
        if f"{top}constants.pkl" in members:
            raise CheckpointError(
                f"{where} is a TorchScript program, which is code",
                hint="torch.save(torch.jit.load(path).state_dict(), 'weights.pt') writes its weights",
            )
        spans = {name: self._span(member) for name, member in members.items()}
        order = members.get(f"{top}byteorder")
        if order is not None and bytes(self._file.buffer[slice(*spans[order.filename])]) != b"little":
            raise CheckpointError(
                f"{where} has numbers in another byte order", hint="save it on a little-endian machine"
            )
        value = read_pickle(io.BytesIO(self._file.buffer[slice(*spans[f"{top}data.pkl"])]), f"{where}: data.pkl")
        prefix = f"{top}data/"
        starts = {
            name.removeprefix(prefix): (start, stop - start)
            for name, (start, stop) in spans.items()
            if name.startswith(prefix)
        }
        return value, starts

    def _span(self, member: zipfile.ZipInfo) -> tuple[int, int]:
        """Return the first byte of a member's content, and the one behind its last."""
        at = member.header_offset
        header = self._file.buffer[at : at + 30]
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise CheckpointError(f"{self._file.path}: {member.filename!r} has no header", hint="download it again")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise CheckpointError(f"{self._file.path}: {member.filename!r} is compressed, which torch never does")
        start = at + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        stop = start + member.file_size
        if stop > self._file.size:
            raise CheckpointError(
                f"{self._file.path}: {member.filename!r} ends behind the file", hint="download it again"
            )
        return start, stop

    def _read_pickles(self, where: str) -> tuple[Any, Mapping[str, tuple[int, int]]]:
        """Read the older format: pickles, then storages."""
        buffer = self._file.buffer
        buffer.seek(0)
        file: Any = buffer
        try:
            magic = read_pickle(file, where)
            if magic != _MAGIC:
                raise CheckpointError(
                    f"{where} is a pickle, but not one of torch.save",
                    hint="only tensors of torch.save are read; save others as .npz or .safetensors",
                )
            _version, system, value, keys = (read_pickle(file, where) for _ in range(4))
            if isinstance(system, dict) and system.get("little_endian") is False:
                raise CheckpointError(f"{where} has numbers in another byte order")
            if not isinstance(keys, list) or not all(type(key) is str for key in keys):
                raise CheckpointError(f"{where} lists no storages", hint="download it again")
            refs = {ref.key: ref for ref in _storages(value)}
            starts: dict[str, tuple[int, int]] = {}
            at = buffer.tell()
            for key in keys:
                count = int.from_bytes(buffer[at : at + 8], "little")
                width = host_of_tag(refs[key].tag or "U8").itemsize if key in refs else None
                if width is None:
                    raise CheckpointError(f"{where} has a storage {key[:40]!r} that no tensor uses")
                starts[key] = (at + 8, count * width)
                at += 8 + count * width
                if at > self._file.size:
                    raise CheckpointError(f"{where} ends within a storage", hint="download it again")
            return value, starts
        finally:
            buffer.seek(0)

    def _checked(self, name: str, view: TensorView, starts: Mapping[str, tuple[int, int]]) -> _Tensor:
        """Check a view against the bytes of its storage."""
        if view.storage.key not in starts:
            raise CheckpointError(f"tensor {name!r} views the storage {view.storage.key[:40]!r}, which is missing")
        start, nbytes = starts[view.storage.key]
        width = host_of_tag(view.tag).itemsize
        declared = view.storage.count * (host_of_tag(view.storage.tag).itemsize if view.storage.tag else 1)
        if declared > nbytes:
            raise CheckpointError(
                f"the storage of tensor {name!r} has {nbytes} bytes, expected {declared}", hint="download it again"
            )
        last = (view.offset + _extent(view)) * width
        if prod(view.shape) and last > nbytes:
            raise CheckpointError(f"tensor {name!r} needs {last} bytes of a storage of {nbytes}")
        if prod(view.shape) * width > max(self._file.size, SMALL):
            raise CheckpointError(f"tensor {name!r} of shape {list(view.shape)} is larger than the file")
        return _Tensor(view, start + view.offset * width)


def _extent(view: TensorView) -> int:
    """Return the elements from the first to the last of a view that has some."""
    return 1 + sum((n - 1) * step for n, step in zip(view.shape, view.strides, strict=True))


def _walk(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values inside dicts and lists with their names joined by points, up to the limits."""
    count, stack = 0, [(prefix, value, 0)]
    while stack:
        name, item, depth = stack.pop()
        count += 1
        if count > MAX_TENSORS or depth > MAX_DEPTH:
            raise CheckpointError(f"it nests more than {MAX_TENSORS:,} values, or {MAX_DEPTH} levels")
        inner: list[tuple[str, Any]] = []
        if isinstance(item, dict):
            inner = [(str(key), each) for key, each in item.items() if type(key) in (str, int)]
        elif isinstance(item, (list, tuple)):
            inner = [(str(i), each) for i, each in enumerate(item) if not isinstance(each, (int, float))]
        else:
            yield name or "tensor", item
        stack += [(f"{name}.{key}" if name else key, each, depth + 1) for key, each in reversed(inner)]


def _flatten(value: Any) -> Iterator[tuple[str, TensorView]]:
    seen: set[str] = set()
    for name, item in _walk(value):
        if isinstance(item, TensorView):
            if name in seen:
                raise CheckpointError(f"two tensors have the name {name[:200]!r}")
            seen.add(name)
            yield name, item


def _storages(value: Any) -> Iterator[StorageRef]:
    return (item.storage for _, item in _walk(value) if isinstance(item, TensorView))


def _choose(value: Any, part: str, where: str) -> tuple[str, Any]:
    """Return the part of a checkpoint that has the weights, and its name."""
    if part:
        for key in part.split("."):
            if not isinstance(value, dict) or key not in value:
                inside = ", ".join(map(str, value)) if isinstance(value, dict) else "nothing"
                raise CheckpointError(f"{where} has no part {part!r}", hint=f"at {key!r} it has {inside[:200]}")
            value = value[key]
        return part, value
    if not isinstance(value, dict) or any(isinstance(item, TensorView) for item in value.values()):
        return "", value
    holding = [key for key, item in value.items() if type(key) is str and any(True for _ in _flatten(item))]
    named = next((key for key in WEIGHT_PARTS if key in holding), None)
    if named is None and len(holding) > 1:
        names = ", ".join(map(repr, holding[:8]))
        raise CheckpointError(
            f"{where} has tensors in {names}, and any of them may be the weights",
            hint=f"choose one in Python: volumetric.loaders.read_arrays({where!r}, part={holding[0]!r})",
        )
    chosen = named or (holding[0] if holding else "")
    if not chosen:
        return "", value
    inner, rest = _choose(value[chosen], "", where)
    return f"{chosen}.{inner}" if inner else chosen, rest


def is_torch_name(path: Path) -> bool:
    """Whether a file has one of the suffixes of torch.save."""
    return path.suffix.lower() in TORCH_SUFFIXES
