"""Formulas: several element-wise operations and the layout of their inputs, as one launch."""

from __future__ import annotations

import struct
from typing import Final

from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    LoweredNode,
    LoweringRequest,
    one_each,
    result,
    single_launch,
    source,
)
from volumetric.formula.binary_functions import FUSED
from volumetric.graph.strides import pad_to

AXES: Final = 4
TENSORS: Final = 5
"""Maximum tensors read: with the result and the predicate they fit the storage buffers of any device."""
READS: Final = 8
STEPS: Final = 16


def formula(request: LoweringRequest) -> LoweredNode:
    """``y = f(parts of tensors)``.

    ``sizes`` are the sizes of the axes; ``reads`` has the index of a tensor, its first element and its strides, for
    each value read; ``steps`` the name, two value indices and two factors of each step.
    """
    attrs, count = request.attrs, request.out_size
    reads, steps = attrs["reads"], attrs["steps"]
    dims = [count, len(reads), len(steps), 0, *(1,) * (AXES - len(attrs["sizes"])), *attrs["sizes"]]
    strides = [(*(0,) * (AXES - len(of)), *of) for _, _, of in reads]
    dims += pad_to([number for of in strides for number in of], AXES * READS)
    dims += pad_to([number for tensor, start, _ in reads for number in (tensor, start, 0, 0)], 4 * READS)
    codes = [(FUSED.index(name), a | b << 16, _bits(alpha), _bits(beta)) for name, a, b, alpha, beta in steps]
    dims += pad_to([number for code in codes for number in code], 4 * STEPS)
    buffers = {f"x_{number}": source(number) for number in range(len(request.inputs))}
    constants = {"READS": READS, "STEPS": STEPS}
    buffers["y"] = result()
    preludes = ("graph/fused/steps",)
    return single_launch(
        one_each("formula", count, request.caps, buffers, dims, constants=constants, preludes=preludes)
    )


def _bits(number: float) -> int:
    """Bits of a number as float32."""
    return int.from_bytes(struct.pack("<f", number), "little")
