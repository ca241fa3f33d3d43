"""The command ``warmup``: compiles kernels now, not at the first prompt."""

from __future__ import annotations

import time

import numpy as np

from volumetric.bench import Case, measure
from volumetric.cli import console, exits
from volumetric.cli.loading import open_for
from volumetric.cli.options import DeviceOptions, ModelSource, OutputOptions, SizeOptions, SourceOptions
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.generate import Model, SamplingParams
from volumetric.generate.sampler import Sampler
from volumetric.run.device import Executable

PROMPTS = (1, 7, 64)
"""One row, few rows and a full tile of rows use different kernels on the CPU."""


def warmup(
    model: ModelSource = None,
    *,
    source: SourceOptions = SourceOptions(),
    device: DeviceOptions = DeviceOptions(),
    size: SizeOptions = SizeOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Compile and cache the kernels that a model needs on a device, and on a GPU tune their settings.

    Parameters
    ----------
    model : str
        The model, see generate.
    """
    output.apply()
    start = time.perf_counter()
    with open_for(model, source, device, context=size.context, threads=size.threads) as opened:
        about = opened.info
        if isinstance(opened.executable, GpuExecutable):
            with console.progress("tuning kernels…"):
                opened.executable.tune()
        with console.progress("compiling kernels…"):
            prepare(opened)
    console.write(f"{about.name} ({about.dtype}) is warm on {about.device} after {time.perf_counter() - start:.1f} s\n")
    return exits.OK


def prepare(model: Model) -> None:
    """Compile all kernels of a model, and run it on prompts of each length that has its own kernels."""
    model.prepare()
    about = model.info
    generate = min(2, about.context - 1)
    most = about.context - generate
    for rows in sorted({min(rows, most) for rows in PROMPTS}):
        measure(model.executable, about.vocab_size, Case(prompt=rows, generate=generate), repetitions=1)
    for rows in _lengths(model.executable, most):
        model.logits([0] * rows)
    Sampler(SamplingParams(temperature=1.0)).draw(np.zeros(about.vocab_size, np.float32))


def _lengths(executable: Executable, most: int) -> list[int]:
    """Lengths of prompts. A GPU records calls for powers of two of rows, and splits products and experts for each."""
    if not isinstance(executable, GpuExecutable):
        return sorted({min(rows, most) for rows in PROMPTS})
    most = min(most, executable.scratch.rows)
    return [*(1 << i for i in range((most - 1).bit_length())), most]
