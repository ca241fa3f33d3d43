"""Folders of files, one folder for each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.hints import path_hint


def files_by_class(
    folder: Path, suffixes: Sequence[str], what: str, known: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
    """Return the names of the classes, and the files with the number of their class; both sorted by name.

    Parameters
    ----------
    suffixes : of the files that are read; others, and hidden ones, are ignored
    what : kind of the files in errors
    known : names of the classes, in order (empty: the folders, sorted)

    Raises
    ------
    CheckpointError
        The folder cannot be read, or has no folder with such files.
    SpecError
        A folder is none of the known classes.
    """
    try:
        inner = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        files = [(path, each) for each in inner for path in sorted(each.rglob("*")) if _is_wanted(path, suffixes)]
    except OSError as error:
        raise CheckpointError(f"cannot read {folder}: {error.strerror or error}", hint=path_hint(folder)) from None
    if not files:
        raise CheckpointError(
            f"{folder} has no folder with {what} ({', '.join(suffixes)})", hint=f"expected {folder.name}/CLASS/FILE"
        )
    classes = tuple(known) or tuple(each.name for each in inner if any(home == each for _, home in files))
    odd = next((home.name for _, home in files if home.name not in classes), None)
    if odd is not None:
        raise SpecError(
            f"{folder}: class {odd!r} is not in the training data", hint=f"the classes are {', '.join(classes)}"
        )
    number = {name: i for i, name in enumerate(classes)}
    return classes, [(path, number[home.name]) for path, home in files]


def _is_wanted(path: Path, suffixes: Sequence[str]) -> bool:
    return path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file()
