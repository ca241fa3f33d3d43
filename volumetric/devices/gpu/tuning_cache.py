"""Tunings of matrix products found by a search, in a file of the user's cache.

The defaults of `devices.gpu.kernels.matmul.tune_matvec` are good: a search gains a few percent of the time per token.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError
from volumetric.devices.gpu.kernels.dispatch import Caps, ceil_div
from volumetric.devices.gpu.kernels.matmul import MatmulShape, MatvecTuning, fits_memory, matvec_tuning, tune_matvec
from volumetric.devices.gpu.kernels.matrix_tiles import (
    MOST_TUNED_ROWS,
    TUNED_ROWS,
    MatrixCut,
    MatrixTile,
    choose_cut,
    is_legal,
)
from volumetric.devices.gpu.shaders import available, read_shader

_log = logging.getLogger(__name__)


class TuningCache:
    """Tunings found for one GPU, in a file for its driver and these shaders.

    Parameters
    ----------
    identity : name and driver of the GPU
    directory : folder of the file; None: the user's cache
    """

    def __init__(self, identity: str, directory: Path | None = None) -> None:
        base = directory or platformdirs.user_cache_path("volumetric", appauthor=False) / "gpu"
        digest = hashlib.sha256(identity.encode())
        parts = [f"{folder}/{name}" for folder in ("dtype", "operand", "sums", "tile") for name in available(folder)]
        for name in ("matvec", "matrix_gemm", *parts):
            digest.update(read_shader(name).encode())
        self._path = base / f"tuning-{digest.hexdigest()[:16]}.json"
        self._cuts: dict[str, dict[str, int]] = {}
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if isinstance(stored, dict):
            self._cuts = stored

    def tuning_of(self, shape: MatmulShape, units: int, caps: Caps) -> MatvecTuning:
        """Return the tuning found for a product, else the default."""
        default = tune_matvec(shape, units, caps)
        stored = self._cuts.get(_key(shape, units))
        try:
            tuning = None if stored is None else matvec_tuning(shape, caps, **stored)
        except (TypeError, ValueError, ZeroDivisionError):
            return default
        return default if tuning is None or not _is_legal(tuning, shape, caps) else tuning

    def remember(self, shape: MatmulShape, units: int, tuning: MatvecTuning) -> None:
        """Store a tuning."""
        chosen = {name: getattr(tuning, name) for name in ("team", "rows", "workgroup", "unroll")}
        self._cuts[_key(shape, units)] = chosen

    def cut_of(self, shape: MatmulShape, units: int, rows: int, caps: Caps) -> MatrixCut:
        """Return the cut of a product on matrix units found for about so many rows, else the default."""
        near = max((count for count in TUNED_ROWS if count <= rows), default=0)
        stored = self._cuts.get(_key(shape, units, near)) if rows <= MOST_TUNED_ROWS else None
        try:
            cut = (
                None if stored is None else MatrixCut(splits=stored["splits"], tile=MatrixTile(**_tile_fields(stored)))
            )
            if cut is not None and 1 <= cut.splits <= ceil_div(shape.k, cut.tile.k) and is_legal(cut.tile, caps):
                return cut
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            pass
        return choose_cut(dataclasses.replace(shape, n=units), rows, caps)

    def remember_cut(self, shape: MatmulShape, units: int, rows: int, cut: MatrixCut) -> None:
        """Store the cut of a product on matrix units for so many rows, one of `TUNED_ROWS`."""
        self._cuts[_key(shape, units, rows)] = dataclasses.asdict(cut.tile) | {"splits": cut.splits}

    def save(self) -> None:
        """Write the file; if that fails the tunings last as long as the process."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(self._cuts, indent=1).encode())
        except (OSError, CheckpointError) as error:
            _log.warning("tunings cannot be saved: %s", error)


def _tile_fields(stored: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in stored.items() if name != "splits"}


def _key(shape: MatmulShape, units: int, rows: int = 0) -> str:
    values = dataclasses.asdict(shape) | {"format": shape.format.prelude, "units": units, "rows_of_x": rows or None}
    return " ".join(f"{name}={value}" for name, value in values.items() if value not in (None, False))


def _is_legal(tuning: MatvecTuning, shape: MatmulShape, caps: Caps) -> bool:
    """Whether the kernel can run with a tuning; tunings from a file are not trusted."""
    powers = all(value >= 1 and value & (value - 1) == 0 for value in (tuning.team, tuning.rows, tuning.workgroup))
    small = tuning.team <= tuning.workgroup <= caps.max_workgroup and tuning.rows * shape.parts * tuning.unroll <= 32
    return powers and small and tuning.unroll >= 1 and fits_memory(shape, tuning, caps)
