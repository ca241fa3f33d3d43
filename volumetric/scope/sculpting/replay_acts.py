"""Repeats what was done to a stream, on the same stream and rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError
from volumetric.observe.recorder import AnyStream
from volumetric.scope.sculpting.act_history import read_history
from volumetric.scope.sculpting.row_source import Rows
from volumetric.scope.sculpting.sculpted_stream import STEPS, SculptedStream


def replay(
    stream: AnyStream, history: str | bytes | Path, rows: Rows | None = None, *, row: int | None = 0, seed: int = 0
) -> tuple[SculptedStream, dict[str, Array]]:
    """Repeat a history on a stream at the same ticks; return the sculpted stream, and the outputs of all ticks by name.

    On the same device with the same rows, outputs are the same bits.

    Parameters
    ----------
    history : JSON text of `SculptedStream.to_json`, or a file of it

    Raises
    ------
    CheckpointError : the history is invalid, or of another network
    SpecError : a step is not possible
    """
    steps, ticks, digest = read_history(history)
    sculpted = SculptedStream(stream, rows, row=row, seed=seed)
    if digest != sculpted.digest:
        raise CheckpointError("the history is of another network", hint="open the stream that was sculpted")
    outputs: list[dict[str, Array]] = []
    for step in steps:
        if step.act not in STEPS:
            raise CheckpointError(f"the history has an unknown step {step.act!r:.40}")
        if step.after > sculpted.elapsed:
            outputs.append(sculpted.advance(step.after - sculpted.elapsed))
        try:
            getattr(sculpted, step.act)(**step.arguments)
        except TypeError as error:
            raise CheckpointError(f"the step {step.act} of the history is invalid: {error}") from None
    if ticks > sculpted.elapsed:
        outputs.append(sculpted.advance(ticks - sculpted.elapsed))
    return sculpted, {name: np.concatenate([y[name] for y in outputs], 1) for name in (outputs[0] if outputs else {})}
