"""Rows of regions of a compiled program as files: one safetensors file for each, and a manifest with checksums."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from volumetric.base._typing import F32Array, Shape
from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.hints import suggestion
from volumetric.loaders.regular_file import open_regular
from volumetric.loaders.safetensors import SafetensorsFile
from volumetric.loaders.safetensors_write import DATA_ALIGNMENT, array_out, write_safetensors
from volumetric.network import Network, check_params
from volumetric.network.grid import Coord
from volumetric.network.weight_store import Params, WeightStore
from volumetric.program.layer.name_checks import check_name
from volumetric.program.layer.program_layer import Program
from volumetric.program.layer.program_params import constants_of, rows_of

FORMAT: Final = "volumetric.exported"
VERSION: Final = 1
MANIFEST: Final = "exported.json"
"""Name of the manifest next to the files of regions."""
TENSOR: Final = "rows"
_MOST_MANIFEST = 16 << 20
_MOST_HEADER = 64 * DATA_ALIGNMENT
"""Maximum size of the header of a file with one tensor."""


class _RegionEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shape: tuple[int, int]
    sha256: str


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    version: int
    regions: dict[str, _RegionEntry]


def save_exported(folder: str | os.PathLike[str], rows: Mapping[str, F32Array]) -> None:
    """Write the rows of regions: ``<region>.safetensors`` with a tensor "rows" each, then ``exported.json``.

    The manifest has the version of its schema, and the shape and SHA-256 of each file; files are written atomically.

    Parameters
    ----------
    folder : target, which is created if it does not exist
    rows : region → float32 ``[rows, d]``, as `volumetric.program.Compiled.exported`

    Raises
    ------
    SpecError : the name of a region is invalid, or two names differ only in case
    CheckpointError : a file cannot be written
    """
    folder = Path(folder)
    names: dict[str, str] = {}
    for name in rows:
        check_name("a region", name)
        other = names.setdefault(name.casefold(), name)
        if other != name:
            raise SpecError(
                f"regions {other!r} and {name!r} differ only in case, so some file systems would overwrite one",
                hint="rename one",
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"cannot create {folder}: {error.strerror or error}", hint="give another folder"
        ) from None
    entries: dict[str, _RegionEntry] = {}
    for name, region_rows in rows.items():
        path = _file(folder, name)
        write_safetensors(path, {TENSOR: array_out(np.ascontiguousarray(region_rows, np.float32))})
        entries[name] = _RegionEntry((region_rows.shape[0], region_rows.shape[1]), _sum(path, None))
    text = msgspec.json.format(msgspec.json.encode(_Manifest(FORMAT, VERSION, entries)), indent=2)
    write_atomic(folder / MANIFEST, text + b"\n")


def read_exported(folder: str | os.PathLike[str]) -> dict[str, F32Array]:
    """Read the files of `save_exported`: region → float32 ``[rows, d]``.

    Raises
    ------
    CheckpointError : a file is missing, truncated, or differs from the manifest; the message names it
    """
    folder = Path(folder)
    return {name: _rows(_file(folder, name), entry) for name, entry in _manifest(folder / MANIFEST).items()}


def load_exported(
    folder: str | os.PathLike[str], network: Network, params: Mapping[str, WeightStore], at: Coord | None = None
) -> Params:
    """Return parameters in which the rows of a folder replace the constants of the same names.

    Parameters
    ----------
    params : parameters of `network`
    at : coordinate of the program; None: the only program

    Raises
    ------
    CheckpointError : as `read_exported`; or the program has no such constant, or its shape differs
    SpecError : there is no program at `at`, or there are several
    """
    check_params(network, params)
    programs = {coord: spec for coord, spec in network.layers.items() if isinstance(spec, Program)}
    if at is None and len(programs) == 1:
        [at] = programs
    if at not in programs:
        where = ", ".join(map(str, programs)) or "no program"
        raise SpecError("load_exported: cannot choose a program", hint=f"give at=…; programs: {where}")
    facts = programs[at].facts
    shapes: dict[str, Shape] = {place.name: (place.rows, facts.program.canvas.width) for place in constants_of(facts)}
    stores = dict(params)
    for name, region_rows in read_exported(folder).items():
        if name not in shapes:
            known = suggestion(name, shapes, f"known constants: {', '.join(shapes) or 'none'}")
            raise CheckpointError(f"{folder}: the program has no constant {name!r}", hint=known)
        if region_rows.shape != shapes[name]:
            raise CheckpointError(
                f"{folder}: region {name!r} has shape {list(region_rows.shape)}, the program expects "
                f"{list(shapes[name])}",
                hint="compile the program from which they were exported",
            )
        stores[f"{at}/{rows_of(name)}"] = WeightStore.from_array(region_rows)
    return Params(stores)


def _file(folder: Path, region: str) -> Path:
    return folder / f"{region}.safetensors"


def _manifest(path: Path) -> dict[str, _RegionEntry]:
    """Read a manifest: region → its entry. Raises `CheckpointError` if it is damaged or of another version."""
    with open_regular(path) as handle:
        data = handle.read(_MOST_MANIFEST + 1)
    if len(data) > _MOST_MANIFEST:
        raise CheckpointError(f"{path}: the file is larger than {_MOST_MANIFEST >> 20} MiB, the limit of a manifest")
    try:
        manifest = msgspec.json.decode(data, type=_Manifest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: invalid manifest of exported rows: {error}", hint="write it with save_exported"
        ) from None
    if manifest.format != FORMAT or manifest.version != VERSION:
        raise CheckpointError(
            f"{path}: format {manifest.format!r}, version {manifest.version} is not supported",
            hint=f"expected {FORMAT!r}, version {VERSION}",
        )
    for name, entry in manifest.regions.items():
        try:
            check_name("a region", name)
        except SpecError as error:
            raise CheckpointError(f"{path}: {error}", hint=error.hint) from None
        if min(entry.shape) < 1:
            raise CheckpointError(
                f"{path}: region {name!r} has shape {list(entry.shape)}",
                hint="expected at least one row and one column",
            )
    return manifest.regions


def _rows(path: Path, entry: _RegionEntry) -> F32Array:
    if _sum(path, 4 * prod(entry.shape)) != entry.sha256:
        raise CheckpointError(
            f"{path}: the SHA-256 differs from that in {MANIFEST}",
            hint="export it again, or copy the whole folder",
        )
    opened = SafetensorsFile(path)
    tensors = {name: (of.type, of.shape) for name, of in opened.entries.items()}
    if tensors != {TENSOR: ("F32", entry.shape)}:
        raise CheckpointError(f"{path}: expected a tensor 'rows', F32 of shape {list(entry.shape)}, found {tensors}")
    return np.array(opened.array(TENSOR), np.float32)


def _sum(path: Path, numbers: int | None) -> str:
    """SHA-256 of a file with `numbers` bytes of data; raises before reading if the size is wrong."""
    with open_regular(path) as handle:
        size = os.fstat(handle.fileno()).st_size
        if numbers is not None and not numbers < size <= numbers + _MOST_HEADER:
            raise CheckpointError(
                f"{path}: {size:,} bytes, but rows take {numbers:,}: the file is truncated, or another file",
                hint="export it again, or copy the whole folder",
            )
        digest = hashlib.sha256()
        while data := handle.read(1 << 20):
            digest.update(data)
        return digest.hexdigest()
