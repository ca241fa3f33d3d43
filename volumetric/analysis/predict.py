"""Outputs of a network for many samples."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array, F32Array
from volumetric.errors import ShapeError
from volumetric.network import Network
from volumetric.runtime import RunOptions, lower
from volumetric.runtime.device import Device
from volumetric.runtime.lower import mixes_rows
from volumetric.runtime.reference import ReferenceDevice
from volumetric.weights import Params


def predict(
    network: Network, params: Params, inputs: Array, *, device: Device | None = None, batch_size: int = 256
) -> F32Array:
    """Return the outputs for `inputs`, samples first.

    Parameters
    ----------
    inputs : rows ``[samples, …]``, which are computed `batch_size` at a time; or sequences ``[samples, T, …]``, each of
        which is computed on its own, from an empty state
    device : where to compute (None: the reference device)

    Raises
    ------
    ShapeError
        `inputs` has another number of axes, or no sample.
    """
    plan = lower(network)
    own = len(plan.values[plan.inputs[0]].shape)
    sequences = inputs.ndim == own + 1
    if len(inputs) == 0 or inputs.ndim not in (own, own + 1):
        raise ShapeError(f"inputs have {own} or {own + 1} axes and at least one sample, got shape {inputs.shape}")
    whole = not sequences and own <= 2 and any(map(mixes_rows, plan.steps))  # the rows are one sequence
    size = len(inputs) if whole else batch_size
    rows = inputs.shape[1] if sequences else min(size, len(inputs))
    chunks = list(inputs) if sequences else [inputs[i : i + size] for i in range(0, len(inputs), size)]
    executable = _chosen(device).compile(plan, params, RunOptions(context=rows))
    try:
        state = executable.new_state()
        outputs: list[F32Array] = []
        for chunk in chunks:
            state.reset()
            outputs.append(executable.forward(state, chunk, last_only=False))
    finally:
        executable.close()
    return np.stack(outputs) if sequences else np.concatenate(outputs)


def _chosen(device: Device | None) -> Device:
    return device or ReferenceDevice()
