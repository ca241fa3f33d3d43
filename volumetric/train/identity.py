"""What makes a run of training this very run, so that a checkpoint goes on with no other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from volumetric.clocked import Clocked
from volumetric.errors import CheckpointError
from volumetric.network import Network
from volumetric.train.config import TrainConfig
from volumetric.train.data import Data, checksum
from volumetric.train.precision import matching
from volumetric.weights import Params


def describe_run(
    network: Network | Clocked, given: Params, config: TrainConfig, data: Data, validation: Data | None
) -> dict[str, Any]:
    """Return what the run depends on, as JSON data."""
    frozen = sorted(set().union(*(matching(pattern, given) for pattern in config.frozen)))
    description = {
        "network": network.to_json(),
        "schemes": {key: str(store.scheme) for key, store in given.items()},
        "frozen": {key: checksum(given[key].values()) for key in frozen},
        "config": config.describe(),
        "data": data.describe(),
        "validation": None if validation is None else validation.describe(),
    }
    return json.loads(json.dumps(description))  # as it will be read again: lists for tuples


def check_run(path: Path, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` where the checkpoint at `path` is of another run, and say what differs."""
    for part, own in mine.items():
        other = theirs.get(part)
        if other == own:
            continue
        names = [part]
        if isinstance(own, dict) and isinstance(other, dict):
            names = [f"{part} {key}" for key in {**other, **own} if own.get(key) != other.get(key)]
        raise CheckpointError(
            f"{path} belongs to another run: {', '.join(names)} differ",
            hint="resume with what the run was started with, or choose another directory",
        )
