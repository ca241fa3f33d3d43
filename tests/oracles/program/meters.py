"""In NumPy: meters: running summaries of the errors of regions. In NumPy."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array
from volumetric.program.layer.meter import Meter


def reduced(meter: Meter, error: Array) -> Array:
    """Return a number for each kind, ``[B, kinds]``, of errors ``[B, N, d]``; `Meter.reduce` says how."""
    flat = error.reshape(len(error), -1)
    e = flat if meter.signed else np.abs(flat)
    mean = e.mean(1)
    if meter.reduce == "max_mean":
        largest = e.max(1)
        kinds = [largest if number % 2 == 0 and len(meter.kinds) > 1 else mean for number in range(len(meter.kinds))]
        return np.stack(kinds, axis=1)
    if meter.reduce == "mean":
        of = mean
    elif meter.reduce == "max":
        of = e.max(1)
    else:
        square = np.square(flat)
        of = np.sqrt(square.mean(1) if meter.reduce == "rms" else square.sum(1))
    return np.repeat(of[:, None], len(meter.kinds), axis=1)


def updated(meter: Meter, held: Array, error: Array, fires: Array) -> Array:
    """Return what a meter holds behind a step: ``s ← decay s + (1 - decay) r`` where its region was computed.

    Parameters
    ----------
    held : ``[B, kinds + 1]``; the last one follows the number 1 in the same way, and is ``1 - decayⁿ``
    error : ``[B, N, d]``
    fires : bool ``[B]``
    """
    with np.errstate(invalid="ignore"):  # of streams whose region does not fire the error may be anything
        r = np.concatenate([reduced(meter, error), np.ones((len(held), 1), held.dtype)], axis=1)
    made = held.dtype.type(meter.decay) * held + held.dtype.type(1 - meter.decay) * r
    return np.where(fires[:, None], made, held)


def shown(meter: Meter, held: Array) -> Array:
    """Return what clocks read, ``[B, kinds]``: divided by ``1 - decayⁿ`` if the meter is corrected; 0 at first."""
    numbers, ones = held[:, :-1], held[:, -1:]
    return numbers / np.where(ones > 0, ones, 1) if meter.corrected else numbers
