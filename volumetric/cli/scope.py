"""The command ``scope``: anything that volumetric makes or runs, as a page that one looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from volumetric.cli import console
from volumetric.cli.exits import UsageError
from volumetric.cli.options import OutputOptions, SourceOptions, check_device
from volumetric.cli.scope_request import ScopeRequest
from volumetric.observe.recording import SUFFIX

PAGE, FILM = ".html", ".gif"
FIGURES: Final = (".pdf", ".png", ".svg")
_FORMER: Final = {"record": SUFFIX, "gif": FILM, "html": PAGE, "serve": None}
"""Former first words of the command, and the ending of the file that they wrote."""


def scope(
    source: str,
    /,
    *others: str,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    html: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    prompt: Annotated[str | None, Parameter(name=["--prompt", "-p"], allow_leading_hyphen=True)] = None,
    rows: Annotated[str | None, Parameter(name="--in", allow_leading_hyphen=True)] = None,
    ticks: int | None = None,
    per_row: int = 1,
    clocked: bool | None = None,
    batch: int | None = None,
    row: int = 0,
    every: int = 1,
    edges: int = 4000,
    rate: int | None = None,
    port: int = 0,
    browser: bool = True,
    device: Annotated[str, Parameter(name=["--device", "-dev"])] = "auto",
    files: SourceOptions = SourceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Look at a network, a model, a recording, or a run of training or evolution, in a browser on this machine.

    scope SOURCE serves a page until Ctrl-C and opens it; the page goes on while a run goes on. --html or
    --out FILE.html writes it as one file that needs nothing else. --out FILE.scope records a network that runs rows,
    FILE.gif films it, and FILE.pdf, .png or .svg draws a figure that a page saved as numbers. docs/scope.md has more.

    Parameters
    ----------
    source : str
        A model (see generate), a .scope recording, a directory of train or evolve, or one of their history files, a
        program (x.program.json), a genome (.json), or a figure that a page saved (.figure.json).
    others : list[str]
        What to compare with: a recording of the same network, a model, or further runs of training.
    out : path
        File to write instead of serving the page; its ending decides what.
    html : bool
        Write the page to SOURCE.html in the current directory.
    prompt : str
        Of a language model: a text of which the page shows attention and the likeliest tokens at every layer.
    rows : str
        Rows of a network, see run: a .npz, .jsonl or .csv file, or - for stdin.
    ticks : int
        Clocked networks: ticks after the last row, in which the inputs keep their values.
    per_row : int
        Clocked networks: ticks for each row.
    clocked : bool
        Run tick by tick; --no-clocked: row by row. Default: from the model.
    batch : int
        Parallel streams, see run.
    row : int
        Index of the shown stream, from 0.
    every : int
        Ticks or rows per frame of a recording.
    edges : int
        Most edges in the scene.
    rate : int
        Ticks or rows a second while the page runs a network (default 10), or frames a second of a film (default 25, or
        fewer in one shorter than two seconds).
    port : int
        TCP port to serve on; 0 chooses a free one.
    browser : bool
        Open the page in the browser.
    device : str
        Device of the model: auto, cpu, gpu, gpu:1, or reference.
    """
    output.apply()
    check_device(device)
    if source in _FORMER and others and not Path(source).exists():
        source, others, out, html = _of_former(source, others, out)
    for flag, value in (
        ("--rate", 1 if rate is None else rate),
        ("--ticks", 1 if ticks is None else ticks),
        ("--per-row", per_row),
        ("--every", every),
    ):
        if value < 1:
            raise UsageError(f"{flag} must be 1 or more, got {value}")
    if html and out is not None and out.suffix != PAGE:
        raise UsageError(f"--html writes a page, --out {out} does not end in {PAGE}", hint="leave one of them out")
    if out is not None and out.suffix not in (PAGE, FILM, SUFFIX, *FIGURES):
        raise UsageError(f"--out must end in {', '.join((PAGE, FILM, SUFFIX, *FIGURES))}, got {out}")
    if html and out is None:
        out = Path(f"{Path(source).stem}{PAGE}")
    request = ScopeRequest(
        source=source, others=others, prompt=prompt, rows=rows, ticks=ticks, per_row=per_row, clocked=clocked,
        batch=batch, row=row, every=every, edges=edges, rate=rate, device=device, files=files,
    )  # fmt: skip
    if out is None:
        return request.serve(port, browser=browser)
    if out.suffix == PAGE:
        return request.write_page(out)
    if out.suffix in FIGURES:
        return request.draw(out)
    return request.record(out)


def _of_former(word: str, others: tuple[str, ...], out: Path | None) -> tuple[str, tuple[str, ...], Path | None, bool]:
    """Return source, others, --out and --html for a command of version 0.1, and note how it is written now."""
    source, *rest = others
    suffix = _FORMER[word]
    target = "" if suffix is None else f" --out {Path(source).stem}{suffix}"
    console.note(f"note: `scope {word} {source}` is now `volumetric scope {source}{target}`")
    if suffix is None or out is not None:
        return source, tuple(rest), out, False
    return source, tuple(rest), Path(f"{Path(source).stem}{suffix}"), False
