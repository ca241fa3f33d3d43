"""export_network: write a network as a folder that a browser replays; see docs/web_format.md."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from volumetric.base.errors import DeviceError, SpecError, UnsupportedError
from volumetric.base.notebook_html import ShowsFields
from volumetric.loaders.directory import new_directory
from volumetric.web.kinds import RecordedKind
from volumetric.web.variant_writer import ModuleTable, VariantWriter
from volumetric.web.variants import WebVariant, chosen_variants
from volumetric.web.weight_pieces import BufferContents, WeightPieces

if TYPE_CHECKING:
    from volumetric.network import Params
    from volumetric.train import TrainConfig

FORMAT: Final = "volumetric.web"
VERSION: Final = 1
MANIFEST: Final = "network.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport(ShowsFields):
    """What an export wrote.

    Attributes
    ----------
    folder : the folder
    kind : as in network.json
    weight_bytes : bytes of all weights files
    manifest_bytes : bytes of network.json
    gpu_bytes : bytes of buffers of the largest variant
    variants : label → (modules, dispatches of all programs)
    """

    folder: Path
    kind: str
    weight_bytes: int
    manifest_bytes: int
    gpu_bytes: int
    variants: Mapping[str, tuple[int, int]]


def export_network(
    source: Any,
    folder: str | os.PathLike[str],
    *,
    params: Params | None = None,
    rows: Sequence[int] = (1, 16),
    context: int | None = None,
    dtype: str | None = None,
    variants: tuple[str, ...] | None = None,
    title: str | None = None,
    samples: int = 64,
    learn: TrainConfig | bool = False,
    template: bool = False,
) -> ExportReport:
    """Write `source` as a folder for browsers. Needs no GPU; the folder appears whole or not at all.

    Parameters
    ----------
    source : path, hub id or ``pkg:module`` of a model; a `LoadedModel`; a `Network` or `Clocked` with `params`; a
        `Genome`, or several of one interface; a `LearnerNetwork`, which learns in the page; a `NeatPopulation`, which
        evolves there
    params : weights of a network
    rows : numbers of rows of calls, for networks on rows; prompts of language models have their own
    context : most tokens; None: 1024 for language models, 128 for encoders, or what the model has learned if it is less
    dtype : scheme to which weights of a file are converted
    variants : names of `volumetric.web.variants.VARIANTS`; None: ``"plain"``, ``"subgroups"`` for networks of more than
        64 KiB, and ``"software"`` for those with kernels that adapters on the CPU may not finish compiling
    title : short name; None: the source's
    samples : samples of a launch of a population
    learn : export the updates, too, so that the network learns in the page, see `LearnerNetwork`; True: by Adam, from
        classes if the model has any, else from numbers
    template : leave out the weights of a language model in a GGUF file, which a reader takes from such a file

    Raises
    ------
    CheckpointError : the source cannot be read, or the folder cannot be written
    UnsupportedError : the network has no form on GPUs, or exceeds what every browser has; the message says where
    SpecError : an argument is out of range
    """
    from volumetric.web.sources import recorded_kind

    chosen = chosen_variants(variants)
    if template:
        return _write_template(
            source, folder, chosen, context=context, title=title, dtype=dtype, learn=learn, only_paying=variants is None
        )
    kind = recorded_kind(
        source, params=params, rows=tuple(rows), context=context, dtype=dtype, title=title, samples=samples,
        learn=learn,
    )  # fmt: skip
    return write_folder(kind, folder, chosen, only_paying=variants is None)


def _write_template(
    source: Any,
    folder: str | os.PathLike[str],
    variants: Sequence[WebVariant],
    *,
    context: int | None,
    title: str | None,
    dtype: str | None,
    learn: TrainConfig | bool,
    only_paying: bool,
) -> ExportReport:
    from volumetric.web.gguf_templates import gguf_template

    if dtype is not None:
        raise SpecError(
            f"a template has no weights that could become {dtype}",
            hint="volumetric convert MODEL NEW.gguf --dtype … writes a file with others",
        )
    if learn:
        raise SpecError(
            "a template does not learn: its weights are those of a file", hint="leave learn or template out"
        )
    template = gguf_template(source, context=context, title=title)
    return write_folder(template, folder, variants, only_paying=only_paying, contents_in=template.contents_in)


def write_folder(
    kind: RecordedKind,
    folder: str | os.PathLike[str],
    variants: Sequence[WebVariant],
    extra: Mapping[str, Any] = {},
    *,
    only_paying: bool = False,
    contents_in: Callable[[WeightPieces], BufferContents] = lambda pieces: pieces,
) -> ExportReport:
    """Record a network for each variant, and write the folder; raises as `export_network`.

    Parameters
    ----------
    variants : in the order of preference; the last one runs everywhere
    extra : further entries of network.json
    only_paying : leave out variants by which the network gains nothing
    contents_in : returns what describes the contents of buffers, and may write them to the pieces
    """
    with new_directory(folder, MANIFEST) as home:
        pieces, modules = WeightPieces(home), ModuleTable()
        contents = contents_in(pieces)
        recorded: list[dict[str, Any]] = []
        entries: dict[str, Any] | None = None
        try:
            for variant in reversed(variants):
                if only_paying and recorded and not variant.pays(recorded[0]):
                    continue
                writer = VariantWriter(variant, modules, contents)
                own = _record(kind, writer)
                if entries is not None and own != entries:
                    raise AssertionError(f"the variants of {kind.title} differ in more than their programs")
                entries = own
                recorded.append(writer.finish())
        finally:
            pieces.close()
        recorded.reverse()
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "kind": kind.kind,
            "title": kind.title,
            "origin": {**kind.origin, "engine": f"volumetric {_version()}"},
            **(entries or {}),
            **extra,
            **contents.entries(),
            "modules": modules.texts,
            "variants": recorded,
        }
        text = json.dumps(manifest, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        for name, content in {**kind.files, MANIFEST: text}.items():
            (home / name).write_bytes(content)
    return ExportReport(
        folder=Path(folder),
        kind=kind.kind,
        weight_bytes=pieces.nbytes,
        manifest_bytes=len(text),
        gpu_bytes=max(sum(buffer["bytes"] for buffer in one["buffers"]) for one in recorded),
        variants={one["label"]: (len(one["pipelines"]), _dispatches(one)) for one in recorded},
    )


def _record(kind: RecordedKind, writer: VariantWriter) -> dict[str, Any]:
    try:
        return kind.record(writer)
    except DeviceError as error:
        raise UnsupportedError(
            f"{kind.title} exceeds what every browser has: {error.args[0]}",
            hint="use a smaller dtype such as int4:g32, or a smaller context",
        ) from error


def _dispatches(variant: Mapping[str, Any]) -> int:
    return sum(len(step.get("dispatches", ())) for steps in variant["programs"].values() for step in steps)


def _version() -> str:
    try:
        return version("volumetric-engine")
    except PackageNotFoundError:
        return "unknown"
