"""What a verb that writes a model or a program may replace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from volumetric.cli.exits import UsageError
from volumetric.loaders.convert import check_target

Overwrite: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]


def check_new(target: Path, *sources: str, overwrite: bool) -> None:
    """Refuse to replace what is there, unless that is asked for; never replace a source.

    Raises
    ------
    CheckpointError : `target` is one of what is read
    UsageError : a file is there, or a directory that is not empty
    """
    check_target(target, *sources)
    if not overwrite and (target.is_file() or (target.is_dir() and any(target.iterdir()))):
        raise UsageError(f"{target} exists and is not overwritten", hint="choose another name, or --overwrite")
