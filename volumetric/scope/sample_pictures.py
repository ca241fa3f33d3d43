"""Samples as a page draws them: pictures, waveforms, texts, or numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError

MOST_SIDE: Final = 64
"""Height and width of a picture at most; larger ones are drawn smaller."""
MOST_NUMBERS: Final = 64
"""Numbers of a sample that bars show."""
_WAVE: Final = 160
_SHORTEST_SOUND: Final = 256
_MOST_TEXT: Final = 400

Decode = Callable[[Sequence[int]], str]


def sample_pictures(inputs: Array, decode: Decode | None = None, shape: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return samples as arrays of a page, with their kind.

    Arrays of one or three channels and two axes of at least 4 are pictures; long arrays of one or two channels are
    sounds; whole numbers are texts if `decode` is passed, else they and all other arrays are numbers.

    Parameters
    ----------
    inputs : ``[samples, …]``
    decode : returns the text of token ids
    shape : shape of one sample, such as ``(1, 28, 28)`` for pictures that are stored flat

    Raises
    ------
    SpecError : samples do not have this shape
    """
    if shape:
        if inputs[0].size != np.prod(shape):
            raise SpecError(f"samples of shape {list(inputs.shape[1:])} do not have the shape {list(shape)}")
        inputs = inputs.reshape(len(inputs), *shape)
    if decode is not None and inputs.dtype.kind in "iu" and inputs.ndim == 2:
        return {"kind": "text", "texts": [decode(row[:_MOST_TEXT].tolist()) for row in inputs]}
    picture = _as_pictures(inputs)
    if picture is not None:
        return _picture(picture)
    sound = _as_sounds(inputs)
    if sound is not None:
        return _wave(sound)
    flat = inputs.reshape(len(inputs), -1)
    return {"kind": "numbers", "numbers": flat[:, :MOST_NUMBERS].astype(np.float32), "total": flat.shape[1]}


def _as_pictures(x: Array) -> Array | None:
    """Return samples as ``[samples, height, width, channels]``, or None."""
    if x.dtype.kind not in "fiu":
        return None
    if x.ndim == 4 and x.shape[1] in (1, 3, 4) and min(x.shape[2:]) >= 4:
        return np.moveaxis(x, 1, -1)[..., :3]
    if x.ndim == 4 and x.shape[3] in (1, 3, 4) and min(x.shape[1:3]) >= 4:
        return x[..., :3]
    if x.ndim == 3 and min(x.shape[1:]) >= 4 and x.dtype.kind == "f":
        return x[..., None]
    return None


def _picture(x: Array) -> dict[str, Any]:
    height, width = x.shape[1:3]
    step = -(-max(height, width) // MOST_SIDE)
    x = x[:, ::step, ::step].astype(np.float64)
    finite = x[np.isfinite(x)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    with np.errstate(invalid="ignore"):
        codes = np.nan_to_num(255 * (x - low) / (high - low or 1.0), nan=0.0, posinf=255.0, neginf=0.0)
    return {"kind": "image", "pixels": codes.clip(0, 255).astype(np.uint8), "range": [low, high],
            "size": [height, width]}  # fmt: skip


def _as_sounds(x: Array) -> Array | None:
    """Return samples as ``[samples, time]``, the first channel, or None."""
    if x.dtype.kind != "f":
        return None
    if x.ndim == 3 and x.shape[1] <= 2:
        x = x[:, 0]
    elif x.ndim == 3 and x.shape[2] <= 2:
        x = x[..., 0]
    return x if x.ndim == 2 and x.shape[1] >= _SHORTEST_SOUND else None


def _wave(x: Array) -> dict[str, Any]:
    starts = np.unique(np.arange(_WAVE) * x.shape[1] // _WAVE)
    low, high = np.fmin.reduceat(x, starts, axis=1), np.fmax.reduceat(x, starts, axis=1)
    wave = np.nan_to_num(np.stack([low, high], -1).astype(np.float32), posinf=0.0, neginf=0.0)
    return {"kind": "sound", "wave": wave, "total": x.shape[1]}
