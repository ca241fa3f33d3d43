"""Sampling on the GPU with integer weights, so that the token is the one that the host samples in float64.

A draw takes the largest score of a row (`elementwise.argmax`, its first launch) and up to four launches more: weights
by bins of depth, the cut of top-p or the draw among the top k, sums of the rest, and the token. If the integer sums are
too close to a border for float64 to be certainly on the same side, the row is left to the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.gpu.kernels.dispatch import Constant, Dispatch, WorkgroupGrid
from volumetric.devices.gpu.kernels.elementwise import ARGMAX_GROUPS

_GROUP = 256
GROUPS = 16
"""Workgroups per row in a pass that weighs all of its scores."""
BINS = 1024
NUMBERS = 128
"""Numbers of the next draws stored per row."""
ROW_WORDS = 4 * (3 + NUMBERS // 2)
TABLE_WORDS = 64
_ROOM = 512
"""Scores that a workgroup compares pairwise; a row with more, up to the bin of the last one, is left to the host."""
BY_WEIGHT, WITHHELD, ADJUSTED = 2, 4, 8
"""Flags of a row: it has top-p, it is always left to the host, its scores change before the draw."""
RECENT = 1 << 31
"""Flag with the index of a score that the repetition penalty changes."""
MOST_TOP_K = 256
TEMPERATURES = (0.01, 100.0)
"""Range of temperatures for which weights fit the fixed point."""
_LN2 = Fraction(6931471805599453094172321214581765680755, 10**40)
_FINITE = 0x7F7FFFFF


def _dispatch(
    name: str, width: int, groups: int, parts: Iterable[str] = (), first: str = "drawing/weights", **constants: Constant
) -> Dispatch:
    return Dispatch(
        kernel=f"drawing/{name}",
        grid=WorkgroupGrid(x=groups, rows_each=1),
        constants={
            "WG": _GROUP,
            "WIDTH": width,
            "GROUPS": GROUPS,
            "BINS": BINS,
            "PARTIAL": ARGMAX_GROUPS,
            "NUMBERS": NUMBERS,
            **constants,
        },
        preludes=("graph/exact", first, *parts),
    )


def adjust(width: int) -> Dispatch:
    """Add bias to scores and apply penalties. Buffers: x, plans, changes."""
    return _dispatch("adjust", width, GROUPS, first="drawing/changes")


def restore(width: int) -> Dispatch:
    """Undo the changes of `adjust`, if rows are kept for the host. Buffers: plans, changes, doubtful."""
    return _dispatch("restore", width, GROUPS, first="drawing/changes")


def bins(width: int) -> Dispatch:
    """Weigh or count the scores by bins. Buffers: x, winners, plans, binned."""
    return _dispatch("bins", width, GROUPS)


def top_p(width: int) -> Dispatch:
    """Find where top-p cuts. Buffers: x, winners, plans, binned, cuts."""
    return _dispatch("top_p", width, 1, ["drawing/find"])


def top_k(width: int) -> Dispatch:
    """Sample from the largest scores. Buffers: x, winners, plans, binned, cuts, ctl."""
    return _dispatch("top_k", width, 1, ["drawing/find"], ROOM=_ROOM)


def sums(width: int) -> Dispatch:
    """Sum the weights of tokens that can be drawn. Buffers: x, winners, plans, cuts, sums."""
    return _dispatch("sums", width, GROUPS, ["drawing/runs"])


def token(width: int) -> Dispatch:
    """Select the token. Buffers: x, winners, plans, sums, cuts, token, control, doubtful."""
    return _dispatch("token", width, 1, ["drawing/runs"])


def table() -> NDArray[np.uint32]:
    """Return ``2**(-i / 64)`` in units of 2**-32, the first one minus its last digit."""
    powers = [round(Fraction(2.0 ** (-i / 64)) * 2**32) for i in range(TABLE_WORDS)]
    return np.array([min(power, 2**32 - 1) for power in powers], np.uint32)


@lru_cache(256)
def plan(*, temperature: float, top_k: int, top_p: float, min_p: float, width: int) -> NDArray[np.uint32] | None:
    """Return the 12 words of a row's sampling plan; None if the host must sample it.

    Parameters
    ----------
    temperature, top_k, top_p, min_p : as in `volumetric.generate.SamplingParams`
    width : tokens of the vocabulary
    """
    words = np.zeros(12, np.uint32)
    if temperature == 0.0:
        return words
    some = 0 < top_k < width
    deepest = _min_p_depth(temperature, min_p)
    if not TEMPERATURES[0] <= temperature <= TEMPERATURES[1] or (some and top_k > MOST_TOP_K) or deepest is None:
        return None
    per_score = 1 / (Fraction(float(temperature)) * _LN2)
    shift = 40 - _exponent(per_score)
    factor = round(per_score * 2**shift)
    part = math.floor(Fraction(float(top_p)) * 2**64) if top_p < 1.0 else 0
    # Positions of bins: 64 for a power of two of the weight, or, if scores are counted, 32 for 1.
    fold = np.float32(32.0 if some else 64.0 * float(per_score))
    words[:4] = 1 + BY_WEIGHT * (top_p < 1.0), factor >> 8, factor & 255, shift + 118
    words[4:8] = top_k if some else 0, part >> 32, part & 0xFFFFFFFF, deepest
    words[8] = fold.view(np.uint32)
    return words


def _exponent(value: Fraction) -> int:
    """The least n for which ``2**n`` is above a value."""
    exponent = math.frexp(float(value))[1]
    return exponent + 1 if round(value * 2 ** (40 - exponent)) >= 2**40 else exponent


def _min_p_depth(temperature: float, min_p: float) -> int | None:
    """Bits of the largest depth whose weight is `min_p` or more; None if float64 may decide otherwise."""
    if min_p <= 0.0:
        return _FINITE
    if min_p >= 1.0:
        return 0
    bits = np.array(-temperature * math.log(min_p), np.float32).view(np.uint32).item()
    for at in range(bits + 2, bits - 3, -1):
        weight = math.exp(-float(np.array(at, np.uint32).view(np.float32)) / temperature)
        if abs(weight - min_p) <= 1e-12 * min_p:
            return None
        if weight > min_p:
            return at
    return None


def numbers(values: Iterable[float]) -> NDArray[np.uint32]:
    """Return numbers of 53 bits below 1 as multiples of 2**-64: high word, low word of each."""
    whole = np.array([int(value * 2**53) << 11 for value in values], np.uint64)
    return np.stack([whole >> np.uint64(32), whole & np.uint64(0xFFFFFFFF)], axis=-1).astype(np.uint32)
