"""The command ``compare``: the difference between the predictions of two models."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.loading import open_for
from volumetric.cli.options import DeviceOptions, OutputOptions, SizeOptions, SourceOptions
from volumetric.cli.perplexity import WINDOW, read_text
from volumetric.generate.model_comparison import ModelComparison, compare_models


def compare(
    a: str,
    b: str,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None,
    *,
    source: SourceOptions = SourceOptions(),
    device: DeviceOptions = DeviceOptions(),
    size: SizeOptions = SizeOptions(),
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Measure the difference between the predictions of two models: KL divergence, agreement, logits, perplexities.

    Both read the text in windows of --context tokens (default: 512), each from an empty sequence. The first model is
    the reference. --compute float32 leaves the weights as the only difference.

    Parameters
    ----------
    a : str
        The first model, see generate.
    b : str
        The second model; --dtype converts this one.
    file : path
        Text file; default: stdin.
    json : bool
        Print one JSON object.
    """
    output.apply()
    text = read_text(file)
    first = dataclasses.replace(source, dtype=None)
    with (
        open_for(a, first, device, context=size.context, threads=size.threads) as one,
        open_for(b, source, device, context=size.context, threads=size.threads) as other,
    ):
        window = size.context or min(WINDOW, one.info.context, other.info.context)
        with console.progress(f"predicting with {one.name} and {other.name}…"):
            comparison = compare_models(one, other, text, window=window)
        names = [f"{model.name} ({model.info.dtype})" for model in (one, other)]
    if json:
        console.write_json({"a": a, "b": b, "window": window, **dataclasses.asdict(comparison)})
    else:
        console.table(("", "value"), _rows(comparison, *names), right=("value",))
    return exits.OK


def _rows(comparison: ModelComparison, a: str, b: str) -> list[tuple[str, str]]:
    return [
        ("KL divergence, nats a token", f"{comparison.kl:.5f} ± {comparison.kl_error:.5f}"),
        ("largest KL of a token", f"{comparison.kl_max:.3f}"),
        ("same most likely token", f"{100 * comparison.top1:.2f} %"),
        ("largest difference of logits", f"{comparison.max_difference:.3f}"),
        (f"perplexity of {a}", f"{comparison.perplexity_a:.4f}"),
        (f"perplexity of {b}", f"{comparison.perplexity_b:.4f}"),
        ("tokens", str(comparison.tokens)),
    ]
