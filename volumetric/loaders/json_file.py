"""Read untrusted JSON files with a size limit and errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from volumetric.base.errors import CheckpointError
from volumetric.base.hints import path_hint
from volumetric.loaders.regular_file import open_regular

MAX_CONFIG_BYTES: Final = 32_000_000
"""Configurations have some kilobytes; a tokenizer with a large vocabulary of added tokens has some megabytes."""


def read_bytes(path: Path, limit: int = MAX_CONFIG_BYTES) -> bytes:
    """Return the content of a file of at most `limit` bytes. Raises `CheckpointError`."""
    try:
        with open_regular(path) as handle:
            data = handle.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}", hint=path_hint(path)) from error
    if len(data) > limit:
        raise CheckpointError(
            f"{path} is larger than {limit} bytes", hint=("check that this is a file of the expected kind")
        )
    return data


def read_json(path: Path, limit: int = MAX_CONFIG_BYTES) -> Any:
    """Return the JSON value in a file. Raises `CheckpointError`."""
    try:
        return json.loads(read_bytes(path, limit))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {str(error)[:200]}", hint="download the file again") from error


def read_object(path: Path, limit: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file. Raises `CheckpointError` if it is anything else."""
    value = read_json(path, limit)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a JSON {type(value).__name__} instead of an object")
    return value
