"""Random streams inside kernels: SplitMix64, seeded from a key and the name of the stream."""

from __future__ import annotations

import math

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel

u64 = np.uint64
GOLDEN = u64(0x9E3779B97F4A7C15)
_MIX_1 = u64(0xBF58476D1CE4E5B9)
_MIX_2 = u64(0x94D049BB133111EB)


@kernel
def mix(z):
    """Scramble 64 bits, one to one."""
    z = (z ^ (z >> u64(30))) * _MIX_1
    z = (z ^ (z >> u64(27))) * _MIX_2
    return z ^ (z >> u64(31))


@kernel
def seed_stream(stream, key, name):
    """Start the stream `name` of `key` in ``stream[0]``: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    stream[0] = mix(key + mix(u64(name) * GOLDEN + GOLDEN))


@kernel
def uniform(stream):
    """A number in [0, 1)."""
    stream[0] += GOLDEN
    return (mix(stream[0]) >> u64(11)) * (1.0 / 9007199254740992.0)


@kernel
def below(stream, bound):
    """An integer in [0, bound)."""
    return int(uniform(stream) * bound)


@kernel
def normal(stream):
    """A standard normal number (Box and Muller, 1958)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(stream)))
    return radius * math.cos(2.0 * math.pi * uniform(stream))
