"""The verb ``convert``: a model in another numeric type or file format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.options import OutputOptions, check_dtype
from volumetric.generate.footprint import footprint
from volumetric.loaders.convert import convert_model


def convert(
    source: str,
    target: Path,
    *,
    dtype: Annotated[str | None, Parameter(name=["--dtype", "--quantize", "-q"])] = None,
    form: Annotated[Literal["hf", "native", "gguf", "loom"] | None, Parameter(name="--format")] = None,
    offline: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Write a model in another numeric type or file format.

    Parameters
    ----------
    source : str
        Anything that generate takes as MODEL.
    target : path
        Directory or file to write.
    dtype : str
        Scheme of the weights: bf16, fp8, int8, int4:g32, q4_0, …; as stored unless given.
    form : str
        hf: safetensors and config.json; native: network.json and weights.safetensors; gguf: one file; loom: JSON
        of the Go engine. By the ending of TARGET (.gguf, .json), else native, unless given.
    offline : bool
        Use local files only.
    """
    output.apply()
    check_dtype(dtype)
    with console.progress(f"converting {source}…"):
        model = convert_model(source, target, format=form, dtype=dtype, offline=offline)
    files = [target] if target.is_file() else [path for path in target.rglob("*") if path.is_file()]
    written = console.size(sum(path.stat().st_size for path in files))
    console.write(f"{target}: {model.name} as {footprint(model.params).dtype}, {written}\n")
    return exits.OK
