"""The verb ``perplexity``: how well a model predicts a text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.loading import open_for
from volumetric.cli.options import Adapters, DeviceOptions, ModelSource, OutputOptions, SizeOptions, SourceOptions

WINDOW = 512
"""Tokens of a window unless given, as for llama.cpp."""


def perplexity(
    model: ModelSource = None,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None,
    *,
    stride: int | None = None,
    lora: Adapters = None,
    source: SourceOptions = SourceOptions(),
    device: DeviceOptions = DeviceOptions(),
    size: SizeOptions = SizeOptions(),
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Tell how well a model predicts a text: the perplexity with its standard error, and the tokens predicted.

    The text is read in windows of --context tokens, 512 unless given, each from an empty sequence. The first token of a
    window is not predicted; every other one sees all before it in its window.

    Parameters
    ----------
    model : str
        As for generate.
    file : path
        Text file; stdin unless given.
    stride : int
        Tokens from the start of one window to that of the next; as many as a window holds unless given. With less,
        windows overlap, and a token counts in the first window that holds it alone: all but the first window's see as
        much before them as windows overlap. Slower, and nearer to a text without windows.
    json : bool
        Print one JSON object.
    lora : list
        Directory of a LoRA adapter that PEFT has saved, PATH or PATH:SCALE; any number of times.
    """
    output.apply()
    text = read_text(file)
    with open_for(model, source, device, context=size.context, threads=size.threads, lora=lora or ()) as opened:
        about = opened.info
        window = size.context or min(WINDOW, about.context)
        if stride is not None and not 1 <= stride <= window:
            raise UsageError(f"--stride must be 1 to {window}, the tokens of a window, got {stride}")
        with console.progress(f"predicting with {about.name} on {about.device}…"):
            estimate = opened.perplexity(text, window=window, stride=stride)
    if json:
        report = {
            "model": about.name,
            "device": about.device,
            "dtype": about.dtype,
            "window": window,
            "stride": stride or window,
            "tokens": estimate.tokens,
            "mean": estimate.mean,
            "mean_error": estimate.error,
            "perplexity": estimate.value,
            "perplexity_error": estimate.value * estimate.error,
        }
        console.write_json(report)
        return exits.OK
    console.write(
        f"perplexity {estimate.value:.4f} ± {estimate.value * estimate.error:.4f} over {estimate.tokens} tokens\n"
    )
    return exits.OK


def read_text(file: Path | None) -> str:
    """Return the text of a file, or of stdin where none is named."""
    if file is not None:
        return file.read_text(encoding="utf-8")
    if sys.stdin.isatty():
        raise UsageError("no text", hint="name a file, or give the text on stdin")
    return console.read_all()
