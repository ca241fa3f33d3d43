"""Models that Python packages contain in a zip archive: unpacked in the user's cache, without running their code.

An archive is untrusted: names must stay inside the directory, sizes are bounded before and during writing, and only
files of a model are extracted. A directory is created atomically.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import zipfile
import zlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

import platformdirs

from volumetric.base.errors import CheckpointError
from volumetric.loaders.directory import new_directory

logger: logging.Logger = logging.getLogger(__name__)

CONFIG: Final = "config.json"
_KINDS: Final = (".json", ".safetensors", ".txt", ".jinja", ".model")
_MAX_WALK: Final = 20_000
_MAX_FILES: Final = 1_000
_MAX_DEPTH: Final = 4
_RATIO: Final = 8
"""Maximum compression ratio of an archive; weights save a tenth, texts a quarter."""
_ALLOWANCE: Final = 64_000_000
_PIECE: Final = 1 << 20

Entry = tuple[zipfile.ZipInfo, tuple[str, ...]]


def unpack_package(module: str, homes: Iterable[Path]) -> Path | None:
    """Return the directory of a model that a package has in an archive; None if it has none.

    The archive is unpacked at the first call. The name of a directory in the cache depends on names, sizes and
    checksums of its files, so another version of the package has another one.

    Raises
    ------
    CheckpointError
        There are several archives, or the archive is damaged, dangerous, or cannot be unpacked.
    """
    archives = [archive for archive in _archives(homes) if _holds_model(archive)]
    if not archives:
        return None
    if len(archives) > 1:
        names = ", ".join(path.name for path in archives)
        raise CheckpointError(
            f"pkg:{module} has several archives: {names}", hint="unpack one of them, and open the directory"
        )
    [path] = archives
    where = f"pkg:{module}: {path}"
    try:
        with zipfile.ZipFile(path) as archive:
            return _unpack(archive, path, where)
    except CheckpointError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{where} is damaged: {str(error)[:200]}", hint="reinstall the package") from error
    except OSError as error:
        raise CheckpointError(f"{where} cannot be read: {error.strerror or error}") from error


def _archives(homes: Iterable[Path]) -> list[Path]:
    files = (Path(directory, name) for home in homes for directory, _, names in os.walk(home) for name in names)
    return sorted(path for path in islice(files, _MAX_WALK) if path.suffix == ".zip")


def _holds_model(path: Path) -> bool:
    """Whether an archive lists weights and a configuration; unreadable archives raise later, if at all."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [PurePosixPath(name) for name in archive.namelist()[: 100 * _MAX_FILES]]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return path.name == "model.zip"
    return any(name.name == CONFIG for name in names) and any(name.suffix == ".safetensors" for name in names)


def _unpack(archive: zipfile.ZipFile, path: Path, where: str) -> Path:
    entries = _entries(archive, where)
    homes = {name[:-1] for _, name in entries if name[-1] == CONFIG}
    homes &= {name[:-1] for _, name in entries if name[-1].endswith(".safetensors")}
    if len(homes) != 1:
        raise CheckpointError(f"{where} has {len(homes)} directories with a {CONFIG} and weights, expected one")
    [home] = homes
    inside = [(info, name[len(home) :]) for info, name in entries if name[: len(home)] == home]
    size = sum(info.file_size for info, _ in inside)
    if size > _RATIO * path.stat().st_size + _ALLOWANCE:
        raise CheckpointError(f"{where} would unpack {path.stat().st_size} bytes to {size}, which is refused")
    listing = "".join(
        f"{'/'.join(name)}\0{info.file_size}\0{info.CRC}\n" for info, name in sorted(inside, key=_entry_name)
    )
    digest = hashlib.sha256(listing.encode()).hexdigest()[:32]
    target = platformdirs.user_cache_path("volumetric", appauthor=False) / "unpacked" / digest
    if _is_there(target, inside):
        return target
    logger.info("%s: unpacking %.0f MB into %s", where, size / 1e6, target)
    with new_directory(target, CONFIG) as fresh:
        for info, name in inside:
            _write(archive, info, fresh.joinpath(*name), where)
    return target


def _entry_name(entry: Entry) -> tuple[str, ...]:
    return entry[1]


def _entries(archive: zipfile.ZipFile, where: str) -> list[Entry]:
    """Files of an archive that belong to a model, with the parts of their names."""
    listed = archive.infolist()
    if len(listed) > _MAX_FILES:
        raise CheckpointError(f"{where} has {len(listed)} entries, more than {_MAX_FILES}")
    files: dict[tuple[str, ...], zipfile.ZipInfo] = {}
    for info in listed:
        name = PurePosixPath(info.filename)
        outside = name.is_absolute() or ".." in name.parts or any(mark in info.filename for mark in "\\:\0")
        linked = stat.S_ISLNK(info.external_attr >> 16)
        if outside or linked or len(name.parts) > _MAX_DEPTH:
            raise CheckpointError(f"{where}: the entry {info.filename[:80]!r} leads outside the archive")
        if info.is_dir() or name.suffix not in _KINDS:
            continue
        if info.flag_bits & 1:
            raise CheckpointError(f"{where}: the entry {info.filename[:80]!r} is encrypted")
        if name.parts in files:
            raise CheckpointError(f"{where}: the entry {info.filename[:80]!r} occurs twice")
        files[name.parts] = info
    return [(info, name) for name, info in files.items()]


def _is_there(target: Path, entries: list[Entry]) -> bool:
    try:
        return all(target.joinpath(*name).stat().st_size == info.file_size for info, name in entries)
    except OSError:
        return False


def _write(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, where: str) -> None:
    """Write one file; its checksum is checked at its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    left = info.file_size
    with archive.open(info) as source, path.open("xb") as target:
        while data := source.read(_PIECE):
            left -= len(data)
            if left < 0:
                break
            target.write(data)
    if left:
        raise CheckpointError(f"{where}: the entry {info.filename[:80]!r} does not have its declared size")
