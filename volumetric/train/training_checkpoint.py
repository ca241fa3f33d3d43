"""Checkpoints of a training run: each is one file with everything needed to resume the run.

A checkpoint is an ``.npz`` file, written to a temporary file, synced and renamed: readers see only complete files, even
after a crash in the middle of a write. Zip checksums detect files that were damaged later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.atomic import atomic_file
from volumetric.base.errors import CheckpointError
from volumetric.base.hints import write_hint
from volumetric.clocked import Clocked
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.train.data import Data, checksum
from volumetric.train.learner import LearnerState
from volumetric.train.npz_arrays import read_npz
from volumetric.train.precision import matching_keys
from volumetric.train.training_config import TrainConfig

VERSION: Final = 1
_ABOUT, _MASTER, _SLOT, _BUFFER, _CARRIED, _BEST = "about", "master", "slot", "buffer", "carried", "best"
_BEFORE: Final = "delete it to continue from the previous checkpoint"
_PATTERN: Final = "step-*.npz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of a run between two updates.

    Attributes
    ----------
    learner : weights, optimiser state, buffers, number of updates
    best : buffers and master weights with the best validation loss; empty without validation
    progress : position in the data, running sums, early stopping; plain data
    run : facts of network, settings and data; plain data, which must be equal when the run is resumed
    """

    learner: LearnerState
    best: Mapping[str, Array]
    progress: Mapping[str, Any]
    run: Mapping[str, Any]


class CheckpointStore:
    """A directory that keeps the newest checkpoints.

    Parameters
    ----------
    directory : created at the first write
    keep : number of checkpoints to keep, at least 1
    """

    def __init__(self, directory: str | Path, keep: int = 2) -> None:
        self.directory: Path = Path(directory).absolute()
        self._keep = max(1, keep)

    def paths(self) -> list[Path]:
        """Return the existing checkpoints, oldest first."""
        return sorted(self.directory.glob(_PATTERN))

    def latest(self) -> Path | None:
        """Return the newest checkpoint, or None."""
        return next(reversed(self.paths()), None)

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint, then delete those beyond `keep`; raise `CheckpointError` if that fails."""
        path = self.directory / f"step-{checkpoint.learner.updates:010d}.npz"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as handle:
                np.savez(handle, allow_pickle=False, **_arrays(checkpoint))
            for old in self.paths()[: -self._keep]:
                old.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot write {path}: {error.strerror or error}", hint=write_hint(path)) from error
        return path

    def sweep(self) -> None:
        """Delete temporary files of killed writers. Only the run that owns the directory may call this."""
        for left in self.directory.glob(f".{_PATTERN}.*.tmp"):
            left.unlink(missing_ok=True)


def _arrays(checkpoint: Checkpoint) -> dict[str, Array]:
    learner = checkpoint.learner
    about = {
        "version": VERSION,
        "updates": learner.updates,
        "slots": list(learner.slots),
        "progress": checkpoint.progress,
        "run": checkpoint.run,
    }
    arrays: dict[str, Array] = {_ABOUT: np.frombuffer(json.dumps(about).encode(), np.uint8)}
    arrays |= {f"{_MASTER}/{key}": array for key, array in learner.masters.items()}
    arrays |= {f"{_BUFFER}/{key}": array for key, array in learner.buffers.items()}
    arrays |= {f"{_CARRIED}/{key}": array for key, array in learner.carried.items()}
    arrays |= {f"{_BEST}/{key}": array for key, array in checkpoint.best.items()}
    for slot, of in learner.slots.items():
        arrays |= {f"{_SLOT}/{slot}/{key}": array for key, array in of.items()}
    return arrays


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint.

    Raises
    ------
    CheckpointError
        The file is missing, damaged, or not a checkpoint of this version.
    """
    arrays = read_npz(path, "checkpoint ", _BEFORE)
    try:
        about = json.loads(arrays.pop(_ABOUT).tobytes())
        if about["version"] != VERSION:
            raise CheckpointError(f"{path} has version {about['version']}, expected {VERSION}")
        slots = {slot: _with_prefix(f"{_SLOT}/{slot}", arrays) for slot in about["slots"]}
        stored = (_with_prefix(part, arrays) for part in (_BUFFER, _CARRIED))
        learner = LearnerState(about["updates"], _with_prefix(_MASTER, arrays), slots, *stored)
        return Checkpoint(
            learner=learner, best=_with_prefix(_BEST, arrays), progress=about["progress"], run=about["run"]
        )
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"cannot read checkpoint {path}: {error}", hint=_BEFORE) from error


def _with_prefix(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    start = prefix + "/"
    return {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}


def describe_run(
    network: Network | Clocked, params: Params, config: TrainConfig, data: Data, validation: Data | None
) -> dict[str, Any]:
    """Return the facts that identify the run, as JSON data."""
    frozen = sorted(set().union(*(matching_keys(pattern, params) for pattern in config.frozen)))
    description = {
        "network": network.to_json(),
        "schemes": {key: str(store.scheme) for key, store in params.items()},
        "frozen": {key: checksum(params[key].values()) for key in frozen},
        "config": config.describe(),
        "data": data.describe(),
        "validation": None if validation is None else validation.describe(),
    }
    return json.loads(json.dumps(description))  # as it will be read back: tuples become lists


def check_run(path: Path, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` if the checkpoint at `path` belongs to another run; the message names the differences."""
    for part, own in mine.items():
        other = theirs.get(part)
        if other == own:
            continue
        names = [part]
        if isinstance(own, dict) and isinstance(other, dict):
            names = [f"{part} {key}" for key in {**other, **own} if own.get(key) != other.get(key)]
        raise CheckpointError(
            f"{path} belongs to another run: {', '.join(names)} differ",
            hint="resume with the original network, settings and data, or choose another directory",
        )
