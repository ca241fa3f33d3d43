"""Opening a model for a verb, with a word on stderr while it takes its time."""

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
    """Load what the flags ask for.

    Raises
    ------
    UsageError : no model is named, and none is installed
    VolumetricError : whatever `volumetric.load` raises
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
    """Open what guesses for `model`, with its context, and close it behind."""
    if draft is None or draft == "lookup":
        yield "lookup" if draft else None
        return
    own = replace(source, dtype=None)
    context, threads = model.info.context, model.executable.options.threads
    with open_for(draft, own, device, context=context, threads=threads) as opened:
        yield opened
