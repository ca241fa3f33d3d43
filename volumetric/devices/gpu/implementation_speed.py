"""How fast a WebGPU implementation is on a GPU: a short measurement of what decoding and prompts do.

Both kinds of work run through the executor, as in use, so the cost of submissions counts, and by the kernels in use:
prompts on matrix units where the implementation has them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from volumetric.devices.gpu.call_schedule import CONTROL_BYTES, SequenceSpan, control_words
from volumetric.devices.gpu.gpu_commands import Command, CopyCommand, PassCommand
from volumetric.devices.gpu.gpu_context import BoundDispatch
from volumetric.devices.gpu.kernels import gemm_tiles, matmul, matrix_tiles
from volumetric.devices.gpu.kernels.dispatch import CallRows, Caps, Dispatch, ceil_div
from volumetric.devices.gpu.kernels.gemm_tiles import choose_tile
from volumetric.devices.gpu.kernels.matmul import MatmulShape
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.open_gpu import OpenGpu

_WIDTH = 2048
_TOKEN_PRODUCTS = 96
"""Dependent products of a token: 32 layers of three."""
_PROMPT_ROWS = 512
_PROMPT_PRODUCTS = 8
_SECONDS = 0.25
"""Time for each kind of work, after a warm-up of the same length: an idle GPU needs a while to raise its clocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplementationSpeed:
    """Seconds of one token, and of one prompt, of a network of dense layers 2048 wide."""

    token: float
    prompt: float

    def describe(self) -> dict[str, float]:
        """Return both as plain data."""
        return asdict(self)


def measure_speed(
    context: OpenGpu,
    *,
    width: int = _WIDTH,
    rows: int = _PROMPT_ROWS,
    seconds: float = _SECONDS,
    halves: bool | None = None,
) -> ImplementationSpeed:
    """Measure an open GPU, with weights and activations of zeros.

    `halves`: whether prompts are multiplied as float16; None: if the GPU has matrix units.

    Raises
    ------
    DeviceError : no memory, or the GPU is lost
    """
    shape = MatmulShape(k=width, n=width, format=FORMATS["float16"])
    nbytes = 4 * 4 * ceil_div(width, 4) * rows
    buffers: dict[str, Any] = {
        "weights": context.buffer(width * shape.format.row_bytes(width), "weights"),
        **{name: context.buffer(nbytes, name) for name in ("one", "other")},
        "halved": context.buffer(2 * matrix_tiles.halved_stride(width) * rows, "halved rows"),
        "undo": context.buffer(4 * rows, "powers of two of halved rows"),
        "result": context.buffer(256, "result", read=True),
        "ctl": context.buffer(CONTROL_BYTES, "control", uniform=True),
    }
    many = CallRows(rows, 0)
    context.write(buffers["ctl"], control_words([SequenceSpan(0, 0, rows)], many, rows))
    token = (matmul.matvec(shape, context.caps, first=0, units=width),)
    prompt = prompt_product(shape, rows, context.caps, halves=context.caps.matrix_units if halves is None else halves)
    executor = context.new_executor()

    def timed(product: tuple[Dispatch, ...], count: int, of: CallRows) -> float:
        ends = ("one", "other")
        calls = [
            _bound(context, dispatch, buffers, ends[i % 2], ends[1 - i % 2])
            for i in range(count)
            for dispatch in product
        ]
        commands: list[Command] = [
            PassCommand(executor.prepare(calls), of),
            CopyCommand(buffers[ends[count % 2]], 0, buffers["result"], 0, 256),
        ]
        return _median_seconds(lambda: executor.read(buffers["result"], 256, executor.submit(commands)), seconds)

    try:
        return ImplementationSpeed(
            token=timed(token, _TOKEN_PRODUCTS, CallRows(1)), prompt=timed(prompt, _PROMPT_PRODUCTS, many)
        )
    finally:
        executor.close()
        for buffer in buffers.values():
            context.free(buffer)


def prompt_product(shape: MatmulShape, rows: int, caps: Caps, *, halves: bool) -> tuple[Dispatch, ...]:
    """Return the launches of a product of many rows."""
    if not halves:
        return (gemm_tiles.gemm(shape, caps, choose_tile(shape, rows, caps), first=0, units=shape.n),)
    cut = matrix_tiles.choose_cut(shape, rows, caps, may_split=False)
    return matrix_tiles.halve_rows(shape), matrix_tiles.matrix_gemm(shape, caps, cut, first=0, units=shape.n)


def _bound(context: OpenGpu, dispatch: Dispatch, buffers: dict[str, Any], x: str, y: str) -> BoundDispatch:
    named = {**buffers, "x": buffers["halved" if dispatch.kernel == "matrix_gemm" else x], "y": buffers[y]}
    declared = {binding.name for binding in context.pipeline(dispatch).linked.bindings}
    return context.bind(dispatch, {name: buffer for name, buffer in named.items() if name in declared})


def _median_seconds(run: Callable[[], object], seconds: float) -> float:
    run()  # compiles
    times = list[float]()
    start = time.perf_counter()
    while (now := time.perf_counter()) < start + 2 * seconds or len(times) < 3:
        run()
        if now >= start + seconds:
            times.append(time.perf_counter() - now)
    return statistics.median(times)
