"""Tensors of a NumPy archive: a zip file of named arrays, from ``np.savez``; none of its content is executed."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.lib import format as npy

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError
from volumetric.dtypes import DTYPES, Packed, Scheme
from volumetric.loaders.tensor_source import TensorEntry

MAX_TENSORS: Final = 1_000_000
_SCHEMES: Final = {np.dtype(each.host): Scheme(dtype=each) for each in DTYPES if each.bits >= 8 and each.safetensors}


class NpzFile:
    """One archive; headers are read when it is opened, arrays on demand.

    Parameters
    ----------
    path : path-like

    Attributes
    ----------
    entries : mapping of name to `TensorEntry`, in file order; offsets start at 0, since arrays may be compressed

    Raises
    ------
    CheckpointError
        It is not a zip file of arrays, or an array has Python objects, which are pickles.
    """

    __slots__ = ("_path", "entries")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.entries: dict[str, TensorEntry] = {}
        try:
            with zipfile.ZipFile(self._path) as archive:
                if len(archive.filelist) > MAX_TENSORS:
                    raise CheckpointError(f"{path} contains more than {MAX_TENSORS} arrays")
                at = 0
                for member in archive.filelist:
                    entry = self._entry(archive, member, at)
                    self.entries[entry.name], at = entry, entry.stop
        except CheckpointError:
            raise
        except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as error:
            raise CheckpointError(
                f"{path} is not an archive of arrays: {error}", hint="write it with np.savez"
            ) from None
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror or error}") from None

    def _entry(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, at: int) -> TensorEntry:
        with archive.open(member) as file:
            version = npy.read_magic(cast("Any", file))
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(cast("Any", file))
        name = member.filename.removesuffix(".npy")
        if dtype.hasobject:
            raise CheckpointError(f"{self._path}: {name!r} contains Python objects, which are pickles and are not read")
        stop = at + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        return TensorEntry(name=name, type=dtype.newbyteorder("=").name, shape=tuple(shape), start=at, stop=stop)

    def scheme(self, name: str) -> Scheme:
        """Return the scheme of the result of `packed`. Raises `CheckpointError` for a type that is not numeric."""
        kind = self.entries[name].type
        stored_scheme = _SCHEMES.get(np.dtype(kind)) if not kind.startswith(("str", "bytes", "void")) else None
        if stored_scheme is None:
            raise CheckpointError(f"{self._path}: array {name!r} has type {kind}, which cannot be decoded")
        return stored_scheme

    def packed(self, name: str) -> Packed:
        """Read one array."""
        scheme = self.scheme(name)
        return Packed.from_array(np.ascontiguousarray(self.array(name), scheme.dtype.host))

    def packed_rows(self, name: str, start: int, stop: int) -> Packed:
        """Read some rows of one array."""
        return self.packed(name).slice_rows(start, stop)

    def release(self, name: str) -> None:
        """Do nothing: no pages are mapped."""

    def array(self, name: str) -> Array:
        """Read one array in its own type."""
        try:
            with np.load(self._path, allow_pickle=False) as archive:
                return archive[name]
        except (zipfile.BadZipFile, ValueError, EOFError, KeyError, OSError) as error:
            raise CheckpointError(f"{self._path}: array {name!r} cannot be read: {error}") from None
