"""export_network: write a network as a folder that a browser replays; see docs/web_format.md."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from volumetric.base.errors import DeviceError, UnsupportedError
from volumetric.base.notebook_html import ShowsFields
from volumetric.loaders.directory import new_directory
from volumetric.web.kinds import RecordedKind
from volumetric.web.variant_writer import ModuleTable, VariantWriter
from volumetric.web.variants import WebVariant, chosen_variants
from volumetric.web.weight_pieces import WeightPieces

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
    variants : names of `volumetric.web.variants.VARIANTS`; None: ``("subgroups", "plain")``, and ``"software"`` for
        networks with kernels that adapters on the CPU may not finish compiling
    title : short name; None: the source's
    samples : samples of a launch of a population
    learn : export the updates, too, so that the network learns in the page, see `LearnerNetwork`; True: by Adam, from
        classes if the model has any, else from numbers

    Raises
    ------
    CheckpointError : the source cannot be read, or the folder cannot be written
    UnsupportedError : the network has no form on GPUs, or exceeds what every browser has; the message says where
    SpecError : an argument is out of range
    """
    from volumetric.web.sources import recorded_kind

    chosen = chosen_variants(variants)
    kind = recorded_kind(
        source, params=params, rows=tuple(rows), context=context, dtype=dtype, title=title, samples=samples,
        learn=learn,
    )  # fmt: skip
    return write_folder(kind, folder, chosen, only_paying=variants is None)


def write_folder(
    kind: RecordedKind,
    folder: str | os.PathLike[str],
    variants: Sequence[WebVariant],
    extra: Mapping[str, Any] = {},
    *,
    only_paying: bool = False,
) -> ExportReport:
    """Record a network for each variant, and write the folder; raises as `export_network`.

    Parameters
    ----------
    variants : in the order of preference; the last one runs everywhere
    extra : further entries of network.json
    only_paying : leave out variants by which the network gains nothing
    """
    with new_directory(folder, MANIFEST) as home:
        pieces, modules = WeightPieces(home), ModuleTable()
        recorded: list[dict[str, Any]] = []
        entries: dict[str, Any] | None = None
        try:
            for variant in reversed(variants):
                labels = [one["label"] for one in recorded[0]["pipelines"]] if recorded else []
                if only_paying and recorded and not variant.pays(labels):
                    continue
                writer = VariantWriter(variant, modules, pieces)
                own = _record(kind, writer)
                if entries is not None and own != entries:
                    raise AssertionError(f"the variants of {kind.title} differ in more than their programs")
                entries = own
                recorded.append(writer.finish())
        finally:
            listed = pieces.close()
        recorded.reverse()
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "kind": kind.kind,
            "title": kind.title,
            "origin": {**kind.origin, "engine": f"volumetric {_version()}"},
            **(entries or {}),
            **extra,
            "pieces": listed,
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
