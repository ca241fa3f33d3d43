"""The command ``export``: a network as a page that runs it in browsers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from volumetric.base.progress import byte_size
from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.options import OutputOptions, check_dtype
from volumetric.cli.overwriting import Overwrite, check_new


def export(
    source: str,
    out: Path,
    *,
    web: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    single_file: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    learn: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    template: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    environment: str | None = None,
    title: str | None = None,
    licence: Annotated[str | None, Parameter(name=["--licence", "--license"])] = None,
    author: str | None = None,
    description: str | None = None,
    image: str | None = None,
    dtype: Annotated[str | None, Parameter(name=["--dtype", "--quantize", "-q"])] = None,
    context: Annotated[int | None, Parameter(validator=validators.Number(gte=1))] = None,
    overwrite: Overwrite = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Write a network as a page that runs it on the GPU of whoever opens it, in a browser.

    It needs no GPU here, no server that computes, and nothing from elsewhere.

    Parameters
    ----------
    source : str
        The model, see generate; or a champion.json, or the directory of a run of evolve.
    out : path
        Folder to write, for any host of static files; with --single-file an HTML file.
    web : bool
        Write a page; convert writes all other formats.
    single_file : bool
        Put everything into one HTML file, of 32 MiB at most, which opens by a double click.
    learn : bool
        Let the network learn in the page, by Adam: from classes if the model has any, else from numbers.
    template : bool
        Leave the weights of a GGUF file out: the page takes them from such a file, without conversion.
    environment : str
        CartPole-v1: a network of 4 inputs and 2 outputs acts there; with --learn it learns from a visitor who plays.
    title : str
        Heading of the page; default: the source's name.
    licence : str
        Licence of the weights, which the page shows; default: what the source's files say.
    author : str
        Who made the network, which the page shows.
    description : str
        A sentence on what the network does, under the title.
    image : str
        HEIGHTxWIDTH of the image that the network's input is; default: by the shape of the input.
    dtype : str
        Scheme of the weights: float16, int8:g32, int4:g32, q4_0, …; default: as stored.
    context : int
        Most tokens of a sequence; default: 1024 for language models, or what the model has learned if it is less.
    overwrite : bool
        Replace an existing page.
    """
    output.apply()
    if not web:
        raise UsageError(
            "export writes pages for browsers, with --web",
            hint=f"volumetric export {source} {out} --web; other formats: volumetric convert {source} {out}",
        )
    check_dtype(dtype)
    if single_file and out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--single-file writes an HTML file, not {out}", hint=f"name it {out}.html")
    if not single_file and out.suffix.lower() in (".html", ".htm"):
        raise UsageError(f"a page is a folder, and {out} is named as one file", hint="add --single-file")
    for value, option in ((single_file, "--single-file"), (dtype, "--dtype"), (learn, "--learn")):
        if template and value:
            raise UsageError(
                f"--template writes no weights, and {option} needs them", hint=f"leave --template or {option} out"
            )
    check_new(out, source, overwrite=overwrite)
    from volumetric.web.save_web import save_web

    with console.progress(f"exporting {source}…"):
        page = save_web(
            source, out, single_file=single_file, title=title, licence=licence, author=author,
            description=description, image=_size_of(image), dtype=dtype, context=context, learn=learn,
            template=template,
            environment=environment,
        )  # fmt: skip
    console.write(f"{out}: {page.title} as a page ({page.view}), {byte_size(page.bytes)}\n")
    if single_file:
        console.note(f"open {out} in a browser with WebGPU")
    else:
        console.note(f"look at it: python -m http.server -d {out}, then open http://localhost:8000 in a browser")
    return exits.OK


def _size_of(text: str | None) -> tuple[int, int] | None:
    """Return height and width of ``HEIGHTxWIDTH``."""
    if text is None:
        return None
    sizes = re.fullmatch(r"(\d{1,4})[x×](\d{1,4})", text)
    if sizes is None:
        raise UsageError(f"--image must be HEIGHTxWIDTH, got {text!r}", hint="as --image 28x28")
    return int(sizes[1]), int(sizes[2])
