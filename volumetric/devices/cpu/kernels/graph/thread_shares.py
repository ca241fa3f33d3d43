"""Division of work: each thread takes a contiguous share of a range."""

from __future__ import annotations

from volumetric.devices.cpu.kernels.jit import kernel


@kernel
def share(count, thread, threads):
    """First of `count` items of `thread`; the share ends at that of ``thread + 1``."""
    return count * thread // threads


@kernel
def flat_share(count, thread, threads):
    """As `share`, for numbers processed 16 at a time: all shares but the last are whole vectors."""
    return min((count + 15) // 16 * thread // threads * 16, count)
