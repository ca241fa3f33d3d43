"""Running one kernel on arrays: what the kernel tests share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.blocks import random_blocks
from volumetric.devices.gpu.call_schedule import CONTROL_BYTES, SequenceSpan, control_words, count_rows
from volumetric.devices.gpu.kernels.dispatch import CallRows, Dispatch
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.dtypes import Packed, Scheme, decode, encode

NARROWED: Mapping[str, Mapping[str, Any]] = {
    "native": {},
    "no subgroups, no immediates": {"subgroup_size": 0, "immediates": False},
    "large": {"invocations": 131072, "unroll": 32},
}
"""Name → capabilities that tests force: as the adapter is, the fallbacks, and the cuts made for a large GPU."""
LEAST: Mapping[str, Any] = {"subgroup_size": 0, "immediates": False, "max_shared": 16384, "max_workgroup": 256}
"""What every WebGPU device has."""
ROOMY: Mapping[str, Any] = {"max_shared": 49152}


def aligned(array: NDArray[Any]) -> NDArray[np.float32]:
    """Rows padded to whole vectors with a number that a kernel must not use."""
    array = np.atleast_2d(array)
    return np.pad(array, ((0, 0), (0, -array.shape[1] % 4)), constant_values=1e3).astype(np.float32)


def zero_aligned(array: NDArray[Any]) -> NDArray[np.float32]:
    """Vector padded with zeros to whole vectors, as parameters are."""
    return np.pad(array, (0, -array.size % 4)).astype(np.float32)


class Kernel:
    """Runs dispatches on a context, and frees what it made."""

    def __init__(self, context: OpenGpu) -> None:
        self.context = context
        self.caps = context.caps
        self._owned: list[Any] = []

    def array(self, data: NDArray[Any], *, uniform: bool = False) -> Any:
        made = self.context.buffer(data.nbytes, "test data", uniform=uniform)
        self.context.write(made, data)
        self._owned.append(made)
        return made

    def empty(self, *shape: int) -> Any:
        """Buffer for a float32 array filled with NaN, so that what a kernel leaves out shows."""
        return self.array(np.full(shape, np.nan, np.float32))

    def control(self, position: int = 0, rows: int = 1) -> Any:
        """Control block of a call of one piece."""
        return self.call([SequenceSpan(0, position, rows)])[0]

    def call(self, places: Sequence[SequenceSpan], each: int = 1, *, singles: bool = True) -> tuple[Any, CallRows]:
        """Control block of a call of these pieces, in blocks of `each` rows; and their numbers."""
        made = self.context.buffer(CONTROL_BYTES, "control", uniform=True)
        rows = count_rows(places, each, singles=singles)
        self.context.write(made, control_words(places, rows, each))
        self._owned.append(made)
        return made, rows

    def weights(self, values: NDArray[np.float32], scheme: str) -> tuple[dict[str, Any], NDArray[np.float64]]:
        """Upload a matrix in a scheme; returns its bindings and the values that it really holds."""
        packed = in_scheme(values, scheme)
        layout = FORMATS[scheme]
        pieces, beside = layout.lay_out(packed)
        found = {"weights": self.array(pieces)}
        if beside is not None:
            found["scales"] = self.array(np.pad(beside, (0, beside.size % 2)))
        return found, decode(packed).astype(np.float64)

    def run(self, *calls: tuple[Dispatch, Mapping[str, Any]], rows: CallRows | int = 1) -> None:
        rows = CallRows(rows) if isinstance(rows, int) else rows
        self.context.run([self.context.bind(dispatch, buffers) for dispatch, buffers in calls], rows)

    def read(self, buffer: Any, rows: int, width: int) -> NDArray[np.float32]:
        """Rows of a buffer whose rows are padded to whole vectors."""
        stride = -(-width // 4) * 4
        flat = self.context.read(buffer, 4 * (stride * (rows - 1) + width)).view(np.float32)
        return np.pad(flat, (0, stride - width)).reshape(rows, stride)[:, :width]

    def close(self) -> None:
        for buffer in self._owned:
            self.context.free(buffer)


def in_scheme(values: NDArray[np.float32], scheme: str) -> Packed:
    """`values` in a scheme; random blocks of the same shape where it is a block format."""
    if Scheme.parse(scheme).blocks is None:
        return encode(values, Scheme.parse(scheme))
    seed = int(np.abs(values).sum() * 1000) % 2**31
    return random_blocks(scheme, values.shape, np.random.default_rng(seed))


def assert_close(got: NDArray[Any], expected: NDArray[Any], tolerance: float = 2e-6) -> None:
    """Compare against the largest magnitude; say where the worst element is."""
    assert got.shape == expected.shape, f"shape {got.shape} instead of {expected.shape}"
    error = np.abs(got - expected)
    worst = np.unravel_index(int(np.nanargmax(np.where(np.isnan(error), np.inf, error))), got.shape)
    limit = tolerance * max(float(np.abs(expected).max()), 1e-30)
    assert np.all(error <= limit), f"at {worst}: {got[worst]} instead of {expected[worst]}; limit {limit:.2e}"
