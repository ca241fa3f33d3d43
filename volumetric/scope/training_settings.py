"""Settings of a training run as names and texts, to compare runs."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base.errors import CheckpointError

_MOST_BYTES: Final = 16 << 20
_LONGEST: Final = 120
_MOST: Final = 200


def settings_of(description: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a run by dotted names, from its description in a checkpoint (`describe_run`)."""
    settings: dict[str, str] = {}
    network = description.get("network")
    if isinstance(network, str):
        settings["network"] = network_text(network)
    flatten(description.get("config"), "", settings)
    for name in ("data", "validation"):
        of = description.get(name)
        if isinstance(of, Mapping):
            flatten({key: value for key, value in of.items() if key in ("samples", "batch_size")}, name, settings)
    schemes = description.get("schemes")
    if isinstance(schemes, Mapping):
        settings["dtypes"] = ", ".join(dict.fromkeys(str(scheme) for scheme in schemes.values()))[:_LONGEST]
    return settings


def flatten(value: Any, name: str, settings: dict[str, str]) -> None:
    """Add a setting, or each setting of a table, to `settings`; the kind of a table stands for the table."""
    if len(settings) >= _MOST:
        return
    if isinstance(value, Mapping):
        for key, of in value.items():
            flatten(of, name if key == "kind" and name else ".".join(filter(None, (name, str(key)[:60]))), settings)
    elif value is not None and value not in ([], {}):
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        settings[name] = text[:_LONGEST]


def network_text(text: str) -> str:
    """Return the layers of a network's JSON in a line, such as ``dense 2×32 · dense 32×3``."""
    try:
        layers = json.loads(text)["layers"]
        parts = []
        for layer in layers.values():
            sizes = [str(value) for key, value in layer.items() if isinstance(value, int) and key != "padding"]
            parts.append(" ".join(filter(None, (str(layer["kind"]), "×".join(sizes)))))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "unknown"
    line = " · ".join(parts)
    return line if len(line) <= _LONGEST else f"{len(parts)} layers: {line[: _LONGEST - 16]}…"


def checkpoint_facts(path: Path) -> tuple[dict[str, str], list[Mapping[str, Any]]]:
    """Return settings, and the events of the epochs so far, of a checkpoint, without reading its weights.

    Raises
    ------
    CheckpointError : the file is damaged, or no checkpoint
    """
    try:
        with zipfile.ZipFile(path) as archive:
            member = archive.getinfo("about.npy")
            if member.file_size > _MOST_BYTES:
                raise ValueError("its description is too large")
            with archive.open(member) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
        about = json.loads(np.asarray(array, np.uint8).tobytes())
        history: list[Mapping[str, Any]] = [entry for entry in about["progress"]["history"] if isinstance(entry, dict)]
        return settings_of(about["run"]), history
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, RecursionError) as error:
        raise CheckpointError(f"cannot read checkpoint {path.name}: {error}") from error
