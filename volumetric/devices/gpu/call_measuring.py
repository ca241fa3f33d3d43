"""Where the time of an executable's calls goes, and the search for faster tunings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from volumetric.devices.gpu.matrix_search import tune_every_product
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.devices.gpu.profile import call_times

if TYPE_CHECKING:
    from volumetric.devices.gpu.encode import RowRecorder
    from volumetric.devices.gpu.gpu_context import GpuContext
    from volumetric.devices.gpu.gpu_state import GpuState
    from volumetric.devices.gpu.kernels.dispatch import CallRows
    from volumetric.devices.gpu.page_pool import PagePool
    from volumetric.devices.gpu.recording_cache import RecordingCache
    from volumetric.devices.gpu.row_limits import RowLimits
    from volumetric.devices.gpu.value_buffers import ValueBuffers
    from volumetric.run.step_times import StepTime


class MeasuresCalls:
    """The part of `GpuExecutable` that measures and tunes."""

    context: GpuContext
    scratch: ValueBuffers
    pool: PagePool
    recordings: RecordingCache
    _recorder: RowRecorder
    _room: RowLimits

    def _forget(self) -> None:
        """Drop all recordings."""
        raise NotImplementedError

    def _check_owner(self, state: GpuState) -> None:
        """Raise `DeviceError` for a state of another executable."""
        raise NotImplementedError

    def _place_rows(self, states: Sequence[GpuState], counts: Sequence[int]) -> tuple[CallRows, NDArray[Any]]:
        """Describe a call in the control block."""
        raise NotImplementedError

    def tune(self) -> None:
        """Search for faster tunings of the products of a token, used by new states of all executables on this GPU.

        Results are saved in the user's cache. Does nothing on software adapters and without timestamps.

        Raises
        ------
        DeviceError : no memory for a copy of the largest matrix
        """
        context = self.context
        if not isinstance(context, OpenGpu) or context.software or "timestamp-query" not in context.features:
            return
        with self.pool.lock:
            tune_every_product(context, self._recorder.products(), halves=self._recorder.halves)
            self._forget()

    def step_times(self, states: Sequence[GpuState], rows: int = 1, *, repeats: int = 10) -> list[StepTime]:
        """GPU time of the dispatches of a call, see `kernel_times`; several rows are measured from position 0.

        Each kind runs alone, so kinds add up to more than the whole. Of more rows than scratch holds, one chunk runs.

        Raises
        ------
        UnsupportedError : the GPU has no timestamps
        """
        for state in states:
            self._room.check(state.position, 1)
        most = max(1, self.scratch.rows // len(states))
        part, rows = ("whole", 1) if rows == 1 else ("body", min(rows, most))
        return self.kernel_times(states, part, rows, repeats=repeats)

    def kernel_times(
        self, states: Sequence[GpuState], part: str = "whole", rows: int = 1, *, repeats: int = 20
    ) -> list[StepTime]:
        """GPU time of each kind of dispatch of one call, see `call_times`. The contents of the states are overwritten.

        Parameters
        ----------
        part : ``"whole"`` or ``"body"``, the part for rows without an output
        rows : rows of each state, at position 0 for more than one, else at the states' positions

        Raises
        ------
        UnsupportedError : the GPU has no timestamps
        """
        with self.pool.lock:
            for state in states:
                self._check_owner(state)
            positions = [state.position for state in states]
            if rows > 1:
                for state in states:
                    state.trim(0)
            try:
                counted, _ = self._place_rows(states, [rows] * len(states))
                return call_times(self.context, self.recordings.calls(part, counted), counted, repeats)
            finally:
                for state, position in zip(states, positions, strict=True):
                    state.advance(position - state.position)
