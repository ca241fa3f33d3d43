"""GGUF files that Python packages contain in parts, because package indexes limit the size of a package.

These packages have a module that joins the parts. No code of a package is run here: the parts are found by name,
``NAME.gguf.part00``, ``NAME.gguf.part01``, …, in the package and in those whose names begin with its name; they are
joined in the user's cache and checked against the package's ``SHA256SUMS``.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

import platformdirs

from volumetric.base.atomic import atomic_file
from volumetric.base.errors import CheckpointError

logger: logging.Logger = logging.getLogger(__name__)

SUMS_NAME: Final = "SHA256SUMS"
_SUM: Final = re.compile(r"(?P<digest>[0-9a-fA-F]{64}) [ *](?P<name>[\w.-]+\.gguf)")
_PART: Final = re.compile(r"(?P<name>.+\.gguf)\.part(?P<number>\d{1,4})")
_MAX_SUMS: Final = 65_536
_MAX_WALK: Final = 50_000
_PIECE: Final = 1 << 20


def assemble_parts(module: str, homes: Iterable[Path], names: Iterable[Path]) -> Path | None:
    """Return the file that a package has in parts, joined in the cache at the first call; None if it has none.

    Parameters
    ----------
    module : name of the package
    homes : its directories
    names : its files

    Raises
    ------
    CheckpointError
        Parts have no checksum, are missing or damaged, or the cache cannot be written.
    """
    sums = {name: digest for path in names if path.name == SUMS_NAME for name, digest in _read_sums(path).items()}
    parts = _parts(module, homes)
    if not parts and not sums:
        return None
    known = sorted(sums.keys() & parts.keys())
    if len(known) == 1:
        return _join(known[0], sums[known[0]], parts[known[0]], f"pkg:{module}")
    by_hand = "join the parts as documented by the package, and open the file"
    if known:
        raise CheckpointError(f"pkg:{module} contains several models in parts: {', '.join(known)}", hint=by_hand)
    if parts:
        raise CheckpointError(
            f"pkg:{module} has parts of {', '.join(sorted(parts))} but no checksum in a file {SUMS_NAME}", hint=by_hand
        )
    raise CheckpointError(
        f"pkg:{module} has the checksum of {', '.join(sorted(sums))}, but no parts",
        hint="install the packages that contain them",
    )


def _read_sums(path: Path) -> dict[str, str]:
    """File name → SHA-256, lower case."""
    try:
        with path.open("rb") as handle:
            text = handle.read(_MAX_SUMS).decode(errors="replace")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    return {match["name"]: match["digest"].lower() for line in text.splitlines() if (match := _SUM.fullmatch(line))}


def _parts(module: str, homes: Iterable[Path]) -> dict[str, list[Path]]:
    """Name of each file with parts → its parts in order, from this package and those with its name as a prefix."""
    parts_by_name: dict[str, dict[int, Path]] = {}
    first = module.partition(".")[0]
    packages = [package for home in homes for package in sorted(home.parent.glob(f"{first}*"))]
    files = (
        Path(directory, name) for package in packages for directory, _, names in os.walk(package) for name in names
    )
    for path in islice(files, _MAX_WALK):
        match = _PART.fullmatch(path.name)
        if match is not None:
            parts_by_name.setdefault(match["name"], {})[int(match["number"])] = path
    return {name: [numbered[number] for number in sorted(numbered)] for name, numbered in parts_by_name.items()}


def _join(name: str, digest: str, parts: list[Path], where: str) -> Path:
    target = platformdirs.user_cache_path("volumetric", appauthor=False) / "assembled" / digest / name
    try:
        if target.is_file() and target.stat().st_size == sum(part.stat().st_size for part in parts):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{where}: cannot write {target}: {error.strerror}", hint="set XDG_CACHE_HOME to a directory with space"
        ) from error
    logger.info("%s: joining %d parts into %s", where, len(parts), target)
    hasher = hashlib.sha256()
    with atomic_file(target) as handle:
        for part in parts:
            with part.open("rb") as piece:
                while data := piece.read(_PIECE):
                    hasher.update(data)
                    handle.write(data)
        if hasher.hexdigest() != digest:
            raise CheckpointError(
                f"{where}: the joined {len(parts)} parts of {name} do not match its checksum in {SUMS_NAME}",
                hint="check that all parts are installed, or reinstall the package",
            )
    return target
