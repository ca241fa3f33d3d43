"""Checks of the target of a command that writes a model or a program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from volumetric.cli.exits import UsageError
from volumetric.loaders.convert_model import check_target

Overwrite: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]


def check_new(target: Path, *sources: str, overwrite: bool) -> None:
    """Refuse to replace an existing target without `overwrite`, and always refuse to replace a source.

    Raises
    ------
    CheckpointError : `target` is one of the sources
    UsageError : `target` is a file, or a directory that is not empty
    """
    check_target(target, *sources)
    if not overwrite and (target.is_file() or (target.is_dir() and any(target.iterdir()))):
        raise UsageError(f"{target} exists and is not overwritten", hint="choose another name, or add --overwrite")
