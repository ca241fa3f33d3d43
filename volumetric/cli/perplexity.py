"""The command ``perplexity``: how well a model predicts a text."""

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
"""Default tokens of a window, as in llama.cpp."""


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
    """Measure the perplexity of a model on a text, with its standard error and the number of predicted tokens.

    The text is read in windows of --context tokens (default: 512), each from an empty sequence. The first token of a
    window is not predicted; every other one sees all earlier tokens of its window.

    Parameters
    ----------
    model : str
        The model, see generate.
    file : path
        Text file; default: stdin.
    stride : int
        Tokens between the starts of two windows; default: the window's size. With fewer, windows overlap, and a token
        counts only in the first window that contains it: after the first window, each sees at least the overlap as
        context. This is slower, and closer to the perplexity without windows.
    json : bool
        Print one JSON object.
    lora : list
        Directory of a LoRA adapter saved by PEFT, PATH or PATH:SCALE; may be repeated.
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
    """Return the text of a file, or of stdin if `file` is None."""
    if file is not None:
        return file.read_text(encoding="utf-8")
    if sys.stdin.isatty():
        raise UsageError("no text", hint="pass a file, or the text on stdin")
    return console.read_all()
