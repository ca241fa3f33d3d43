"""The command ``merge``: two models of one architecture into a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.options import OutputOptions
from volumetric.cli.overwriting import Overwrite, check_new
from volumetric.evolution.splice import SpliceConfig
from volumetric.evolution.splice import merge as merge_models
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import format_of, save_model
from volumetric.loaders.model_location import NATIVE_NAME


def merge(
    a: str,
    b: str,
    target: Path,
    *,
    mode: Literal["blend", "point", "uniform"] = "blend",
    share: float = 0.5,
    by_similarity: Annotated[bool, Parameter(negative="--plain")] = True,
    seed: int = 0,
    form: Annotated[Literal["hf", "native", "gguf"] | None, Parameter(name="--format")] = None,
    overwrite: Overwrite = False,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    offline: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Merge two models of one architecture, layer by layer, into a new one that generates.

    Tokenizer, templates and numeric types are those of A.

    Parameters
    ----------
    a : str
        The first model, see generate.
    b : str
        The second model, of the same architecture and sizes; its numeric types may differ.
    target : path
        Directory or file to write.
    mode : str
        blend: a weighted mean; point: the first part of each layer from A, the rest from B; uniform: each weight from
        A or B at random.
    share : float
        Share of B, 0 to 1.
    by_similarity : bool
        Blend dissimilar layers less; --plain uses the same share everywhere.
    seed : int
        Seed of the uniform mode.
    form : str
        File format, see convert. Default: by the ending of TARGET, else native if A is in that format, else hf.
    overwrite : bool
        Replace an existing TARGET.
    json : bool
        Print the result of each layer as JSON.
    offline : bool
        Use local files only.
    """
    output.apply()
    format_of(target, form)
    check_new(target, a, b, overwrite=overwrite)
    with console.progress(f"merging {a} and {b}…"):
        first, second = (open_model(source, offline=offline) for source in (a, b))
        # A model that was trained here has no Hugging Face family, and one in format native stays in it.
        native = not first.config or (first.directory / NATIVE_NAME).is_file()
        to = format_of(target, form, "native" if native else "hf")
        config = SpliceConfig(mode=mode, share=share, by_similarity=by_similarity, seed=seed)
        merged, report = merge_models(first, second, config)
        save_model(target, merged, to)
    if json:
        layers = [{"path": r.path, "similarity": r.similarity, "share": r.share, "reason": r.reason} for r in report]
        console.write_json({"target": str(target), "layers": layers})
        return exits.OK
    rows = [[r.path, "" if r.similarity is None else f"{r.similarity:.4f}", f"{r.share:.3f}", r.reason] for r in report]
    console.table(
        ("where", "similarity", "share of B", "kept as in A because"), rows, right=("similarity", "share of B")
    )
    console.write(f"{target}: {merged.name}\n")
    return exits.OK
