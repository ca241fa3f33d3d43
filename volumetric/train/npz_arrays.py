"""Reading of ``.npz`` files that may be damaged."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError
from volumetric.base.hints import path_hint

# The errors of numpy and zipfile for damaged files have no common base.
_DAMAGE = (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error)


def read_npz(
    path: str | Path,
    what: str = "",
    hint: str = "the file is damaged or truncated",
    select: Callable[[str], bool] = lambda name: True,
) -> dict[str, Array]:
    """Read the arrays whose names `select` accepts, and verify their checksums. Pickles are not read.

    `what` names the kind of file in errors; `hint` is the hint for damaged files.

    Raises
    ------
    CheckpointError
        The file is missing, damaged, or not an ``.npz`` file.
    """
    try:
        # numpy leaves a damaged file open if it opened it itself
        with Path(path).open("rb") as handle:
            if not zipfile.is_zipfile(handle):
                raise CheckpointError(
                    f"cannot read {what}{path}: it is not an .npz file", hint=_other_kind(path) or hint
                )
        with Path(path).open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            return {name: file[name] for name in file.files if select(name)}
    except _DAMAGE as error:
        if isinstance(error, CheckpointError):
            raise
        if isinstance(error, OSError) and error.strerror:
            raise CheckpointError(f"cannot read {what}{path}: {error.strerror}", hint=path_hint(path)) from error
        raise CheckpointError(f"cannot read {what}{path}: {error}", hint=hint) from error


def _other_kind(path: str | Path) -> str | None:
    """Return what to do with a file of another kind, by its suffix; None if it has none of these."""
    name = Path(path).name
    return {
        ".csv": f'set csv = "{name}" for a table',
        ".npy": f"put both arrays into one file: numpy.savez(path, inputs=numpy.load({name!r}), targets=…)",
    }.get(Path(path).suffix)


def array_names(path: str | Path) -> list[str]:
    """Return the names of all arrays of a file."""
    with zipfile.ZipFile(path) as file:
        return [name.removesuffix(".npy") for name in file.namelist()]


def is_part(name: str, *parts: str) -> bool:
    """Whether the name of an array is a part or ``part.name``."""
    return name in parts or name.startswith(tuple(f"{part}." for part in parts))


def rename_arrays(arrays: Mapping[str, Array], names: Mapping[str, str]) -> dict[str, Array]:
    """Rename arrays ``old`` and ``old.name`` by `names` to ``new`` and ``new.name``, unless that name exists."""
    by_new_name = {}
    for name, array in arrays.items():
        first, dot, rest = name.partition(".")
        new = f"{names[first]}{dot}{rest}" if first in names else name
        by_new_name[name if new in arrays else new] = array
    return by_new_name
