"""Pooling of whole texts: calls follow each other without a wait, and only pooled rows come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.gpu.call_schedule import PLACES, SequenceSpan, whole_calls
from volumetric.devices.gpu.gpu_commands import CopyCommand
from volumetric.devices.gpu.kernels.dispatch import Dispatch, ceil_div
from volumetric.devices.gpu.kernels.pool_rows import pool_rows
from volumetric.devices.gpu.readback_buffer import ReadbackBuffer
from volumetric.devices.gpu.recording_cache import RecordingCache
from volumetric.run.text_pooling import CheckedTexts


class TextPooling:
    """Runs texts through a graph whose rows see no state, and pools an output of them.

    Attributes
    ----------
    rows : rows of a call; longer texts cannot be pooled
    """

    def __init__(self, recordings: RecordingCache, context: int) -> None:
        scratch = recordings.scratch
        self.rows: int = min(scratch.rows, scratch.tail_rows)
        self._recordings, self._context = recordings, context
        self._readback: ReadbackBuffer = ReadbackBuffer(recordings.context)

    def run(
        self, texts: CheckedTexts, inputs: Mapping[str, int], output: int, modes: Sequence[str], skipped: int
    ) -> NDArray[np.float32]:
        """Return a row for each text, see `PoolsTexts.pool_texts`.

        Parameters
        ----------
        inputs, output : tensors of the graph
        """
        recordings, lengths = self._recordings, texts.lengths
        width = recordings.graph.tensors[output].width
        stride = ceil_div(width, 4)
        row_bytes = 16 * stride * len(modes)
        pooled = recordings.spare(PLACES * row_bytes, "pooled rows")
        readback = self._readback.of(len(lengths) * row_bytes)
        needed = recordings.needed_segments([output])
        starts = list(accumulate(lengths, initial=0))
        number = 0

        def dispatches() -> list[Dispatch]:
            wide = stride * len(modes)
            facts = {"width": width, "stride": wide, "skipped": skipped, "context": self._context}
            return [pool_rows(pooling=mode, at=i * stride, **facts) for i, mode in enumerate(modes)]

        label, buffers = f"pooled {output} {modes} {skipped}", {"x": recordings.scratch.values[output], "y": pooled}
        for call in whole_calls(lengths, self.rows, recordings.block):
            rows, _ = recordings.place_rows([SequenceSpan(0, 0, lengths[i]) for i in call])
            for name, value in inputs.items():
                recordings.write(value, texts.inputs[name][starts[call.start] : starts[call.stop]])
            at, size = call.start * row_bytes, len(call) * row_bytes
            commands = [
                recordings.pass_of("whole", rows, needed),
                recordings.pass_over(label, rows, dispatches, buffers),
                CopyCommand(recordings.scratch.buffers[pooled], 0, readback, at, size),
            ]
            number = recordings.executor.submit(commands)
        words = np.frombuffer(recordings.executor.read(readback, len(lengths) * row_bytes, number), np.float32)
        return words.reshape(len(lengths), len(modes), -1)[:, :, :width].reshape(len(lengths), -1)

    def close(self) -> None:
        """Free the memory."""
        self._readback.close()
