"""Random streams: every draw in the package uses a generator created here or passed by the caller."""

from __future__ import annotations

import secrets

import numpy as np


def fresh_seed() -> int:
    """Return an unpredictable 32-bit seed, short enough to print and type again."""
    return secrets.randbits(32)


def generator(seed: int, *stream: int) -> np.random.Generator:
    """Return the generator of one named stream of `seed`.

    Philox is counter based: its numbers depend on (seed, stream, counter) alone, so a stream gives the same numbers
    on every platform, and the streams of one seed are independent in whatever order they are created.

    Parameters
    ----------
    seed : non-negative integer
    stream : non-negative integers that name the stream, for example ``(generation, genome)``

    References
    ----------
    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=stream)))
