"""Tensors in block formats out of random bytes: any codes and scales, with steps of a size to compute with."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from volumetric.dtypes import Packed, Scheme

_STEPS: Mapping[str, tuple[tuple[int, float], ...]] = {
    "q2_k": ((80, 0.05), (82, 0.05)),
    "q3_k": ((108, 0.02),),
    "q4_k": ((0, 0.003), (2, 0.02)),
    "q5_k": ((0, 0.0015), (2, 0.02)),
    "q6_k": ((208, 0.0007),),
    "q5_0": ((0, 0.1),),
    "q5_1": ((0, 0.1), (2, -1.5)),
    "iq4_nl": ((0, 0.02),),
    "iq4_xs": ((0, 0.0007),),
    "tq1_0": ((52, 1.0),),
    "tq2_0": ((64, 1.0),),
}
"""Where a block has its float16 numbers, and about how large they must be for values about 1."""


def random_blocks(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Packed:
    """A tensor of that block format; rows need not fill their last block."""
    form = Scheme.parse(name).blocks
    assert form is not None
    blocks = form.blocks(shape[-1])
    raw = rng.integers(0, 256, (prod(shape[:-1]) * blocks, form.block_bytes), np.uint8)
    for at, size in _STEPS.get(name, ()):
        values = (size * rng.uniform(0.5, 2.0, len(raw))).astype(np.float16)
        raw[:, at : at + 2] = values.view(np.uint8).reshape(-1, 2)
    if name == "mxfp4":
        raw[:, 0] = rng.integers(123, 128, len(raw))
    if name == "q3_nl":
        raw[:, 0] = rng.integers(115, 131, len(raw))
    scheme = Scheme.parse(name)
    payload = np.zeros((prod(shape[:-1]), 4 * scheme.words_per_row(shape[-1])), np.uint8)
    payload[:, : form.row_bytes(shape[-1])] = raw.reshape(len(payload), -1)
    return Packed(scheme=scheme, shape=shape, payload=payload.view(np.uint32))
