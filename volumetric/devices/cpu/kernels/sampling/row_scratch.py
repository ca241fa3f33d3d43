"""Memory layout: the words of a request, and the scratch of a row."""

from __future__ import annotations

from typing import NamedTuple

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.sampling.select import GROUP
from volumetric.devices.cpu.kernels.sampling.weights import BLOCK

WORDS = (
    "logits", "size", "bias", "bias_values", "biases", "history", "recent", "generated", "histories", "top_k",
    "logprobs", "top_ids", "top_values", "temperature", "turns", "high", "low", "inverse", "least", "top_p", "min_p",
    "repetition", "presence", "frequency", "random", "token", "state", "norm",
)  # fmt: skip
"""The words of a request, 8 bytes each.

``logits`` : address of `size` float32
``bias``, ``bias_values`` : addresses of `biases` int32 token ids and float32
``history``, ``recent``, ``generated`` : addresses of `histories` int32 each: token ids, how often each is among the
    tokens that the repetition penalty sees, and how often it was generated
``top_k`` : 0 is off
``logprobs`` : most likely tokens to return in ``top_ids`` (int32) and ``top_values`` (float32, logits); -1 for
    no log-probabilities at all
``temperature`` : float64, as all that follow; 0 takes the largest score
``turns``, ``high``, ``low``, ``inverse``, ``least`` : see `volumetric.devices.cpu.kernels.sampling.weights.weight`
``random`` : the random number of the draw, in [0, 1)
``token``, ``state``, ``norm`` : the result. The state is one of those below, an integer like the token; ``norm``
    receives the logarithm of the sum of the exponentials of all logits, if log-probabilities are requested.
"""

USABLE, NAN, INFINITE, NONE_POSSIBLE, ADJUSTED = 0, 1, 2, 3, 4
"""States of the logits; `ADJUSTED` is added if bias and penalties caused the state."""

(
    AT_LOGITS, AT_SIZE, AT_BIAS, AT_BIAS_VALUES, AT_BIASES, AT_HISTORY, AT_RECENT, AT_GENERATED, AT_HISTORIES, AT_TOP_K,
    AT_LOGPROBS, AT_TOP_IDS, AT_TOP_VALUES, AT_TEMPERATURE, AT_TURNS, AT_HIGH, AT_LOW, AT_INVERSE, AT_LEAST, AT_TOP_P,
    AT_MIN_P, AT_REPETITION, AT_PRESENCE, AT_FREQUENCY, AT_RANDOM, AT_TOKEN, AT_STATE, AT_NORM,
) = (8 * i for i in range(len(WORDS)))  # fmt: skip


class RowScratch(NamedTuple):
    """Scratch of one row: `width` scores, a multiple of `GROUP`, and addresses of arrays with room for them."""

    width: int
    row: int
    peaks: int
    scores: int
    numbers: int
    weights: int
    keys: int
    sums: int
    spare: int


@kernel
def _entry_bytes(size):
    return (size + GROUP - 1) // GROUP * GROUP + BLOCK


def scratch_bytes(size: int) -> int:
    """Bytes of scratch for rows of `size` logits, a multiple of 64."""
    return (size + GROUP + BLOCK) * 32 // 64 * 64


@kernel
def divide_scratch(size, scratch):
    """Divide `scratch`, the address of `scratch_bytes`."""
    room = _entry_bytes(size)
    weights = scratch
    keys = weights + 8 * room
    row = keys + 8 * room
    scores = row + 4 * room
    numbers = scores + 4 * room
    peaks = numbers + 4 * room
    sums = peaks + room // 2
    spare = sums + room // 2
    return RowScratch(room - BLOCK, row, peaks, scores, numbers, weights, keys, sums, spare)
