"""Opening a model for a command, with progress on stderr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from volumetric.cli import console
from volumetric.cli.options import DeviceOptions, SourceOptions, choose_model

if TYPE_CHECKING:
    from volumetric.generate import Model


def open_for(
    model: str | None,
    source: SourceOptions = SourceOptions(),
    device: DeviceOptions = DeviceOptions(),
    *,
    context: int | None = None,
    threads: int | None = None,
    chat_template: str | None = None,
    lora: Sequence[str] = (),
) -> Model:
    """Load the model that the flags describe.

    Raises
    ------
    UsageError : no model is named, and no default model is installed
    VolumetricError : see `volumetric.load`
    """
    from volumetric.generate import load

    chosen = choose_model(model)
    with console.progress(f"loading {chosen}…"):
        return load(
            chosen,
            device=device.device,
            dtype=source.dtype,
            context=context,
            compute=device.compute,
            kv_dtype=device.kv_dtype,
            threads=threads,
            chat_template=chat_template,
            lora=lora,
            offline=source.offline,
            strict=source.strict,
            guess=source.guessed(),
        )


@contextmanager
def opened_draft(
    draft: str | None, model: Model, source: SourceOptions, device: DeviceOptions
) -> Iterator[Model | Literal["lookup"] | None]:
    """Open the draft model for `model`, with its context, and close it after the context manager ends."""
    if draft is None or draft == "lookup":
        yield "lookup" if draft else None
        return
    own = replace(source, dtype=None)
    context, threads = model.info.context, model.executable.options.threads
    with open_for(draft, own, device, context=context, threads=threads) as opened:
        yield opened
