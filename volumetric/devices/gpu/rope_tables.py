"""Tables of cosines and sines for rotary embeddings, computed on the host in float64.

GPUs guarantee no accuracy for the sine of a large angle (Vulkan bounds it on [-π, π] only), so kernels look it up.
"""

from __future__ import annotations

import numpy as np

from volumetric.devices.gpu.value_buffers import ValueBuffers
from volumetric.graph.numeric.rope import Rope, rotation


class RotationTables:
    """One buffer for each rotation, shared by the layers that use it."""

    def __init__(self, scratch: ValueBuffers) -> None:
        self._scratch = scratch
        self._tables: dict[tuple[Rope, int], str] = {}

    def table(self, rope: Rope | None, positions: int) -> str | None:
        """Name of a buffer of float32 (cos, sin), ``[positions, dim / 2, 2]``; None without a rotation."""
        if rope is None:
            return None
        if (rope, positions) not in self._tables:
            cos, sin = rotation(rope, np.arange(positions))
            table = np.stack([cos, sin], axis=-1).astype(np.float32)
            self._tables[rope, positions] = self._scratch.add_array(table, "rotation table")
        return self._tables[rope, positions]
