"""Formulas: several element-wise operations and the layout of their inputs, as one launch."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    LoweredNode,
    LoweringRequest,
    elements,
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
MOST: Final = 1 << 18
"""Elements up to which a launch costs more than the steps of a formula that looks them up, all with one pipeline."""


def formula(request: LoweringRequest) -> LoweredNode:
    """``y = f(parts of tensors)``.

    ``sizes`` are the sizes of the axes; ``reads`` has the index of a tensor, its first element and its strides, for
    each value read; ``steps`` the name, two value indices and two factors of each step.
    """
    attrs, count, caps = request.attrs, request.out_size, request.caps
    sizes, reads, steps = attrs["sizes"], attrs["reads"], attrs["steps"]
    buffers = formula_buffers(request) | {"y": result()}
    dims = [count, len(reads), len(steps), 0, *(1,) * (AXES - len(sizes)), *sizes, *formula_words(attrs)]
    if count > MOST:
        constants, preludes = {"RANK": len(sizes)}, (written_prelude(attrs),)
        return single_launch(
            elements("formula_written", count, caps, buffers, dims, constants=constants, preludes=preludes)
        )
    constants = {"READS": READS, "STEPS": STEPS}
    return single_launch(
        one_each("formula", count, caps, buffers, dims, constants=constants, preludes=("graph/fused/steps",))
    )


def formula_buffers(request: LoweringRequest) -> dict[str, BufferRef]:
    """Return the tensors that a formula reads, by their names in shaders."""
    return {f"x_{number}": source(number) for number in range(len(request.inputs))}


def formula_words(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return strides and beginnings of the reads of a formula, and its steps, as shaders have them in ``dims``."""
    strides = [(*(0,) * (AXES - len(of)), *of) for _, _, of in attrs["reads"]]
    begins = [number for tensor, start, _ in attrs["reads"] for number in (tensor, start, 0, 0)]
    codes = [
        (FUSED.index(name) if name in FUSED else 0, a | b << 16, _bits(alpha), _bits(beta))
        for name, a, b, alpha, beta in attrs["steps"]
    ]
    return (
        *pad_to([number for of in strides for number in of], AXES * READS),
        *pad_to(begins, 4 * READS),
        *pad_to([number for code in codes for number in code], 4 * STEPS),
    )


def written_prelude(attrs: Mapping[str, Any]) -> str:
    """Return the name of the prelude that has a formula as code; its sizes, strides and factors are in ``dims``."""
    tensors = ",".join(str(tensor) for tensor, _, _ in attrs["reads"])
    return "graph/written/" + ";".join([tensors, *(f"{name},{a},{b}" for name, a, b, _, _ in attrs["steps"])])


def _bits(number: float) -> int:
    """Bits of a number as float32."""
    return int.from_bytes(struct.pack("<f", number), "little")
