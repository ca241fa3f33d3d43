"""The verb ``scope``: what layers do while a network runs, recorded, as films, and live for viewers of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.options import OutputOptions, SourceOptions, check_device
from volumetric.observe.recording import SUFFIX, Recording, describe


def scope(
    what: Literal["record", "gif", "html", "serve"],
    source: str,
    /,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
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
    device: Annotated[str, Parameter(name=["--device", "-dev"])] = "auto",
    files: SourceOptions = SourceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Record what layers do while a network runs, draw it, or show it to viewers of this machine.

    scope record MODEL --in rows.npz writes a .scope file; scope gif and scope html draw one; scope serve shows one, or
    a model that runs, as a page for a browser: GET / is the page, GET /scene tells what there is, GET /ticks is a frame
    for each tick as server-sent events.
    docs/activity.md has more.

    Parameters
    ----------
    what : {"record", "gif", "html", "serve"}
        What to do.
    source : str
        With record a model, as run takes it; with gif and html a .scope file; with serve either.
    out : path
        File to write; the source's name with another ending, in the current directory, unless given.
    rows : str
        Rows of the model, as of run: a .npz, .jsonl or .csv file, or - for stdin.
    ticks : int
        Ticks after the last row, on what the inputs hold; of clocked networks.
    per_row : int
        Ticks for each row; of clocked networks.
    clocked : bool
        Run tick by tick; --no-clocked row by row. As the model says unless given.
    batch : int
        Streams side by side, as of run.
    row : int
        Which of them is looked at, from 0.
    every : int
        Ticks or rows from one frame to the next.
    edges : int
        Most edges that the scene shows.
    rate : int
        Frames a second, of films and when serving: 25, or fewer in a film that would take less than two seconds, unless
        given.
    port : int
        TCP port to serve on; 0 takes a free one.
    device : str
        Where the model runs: auto, cpu, gpu, gpu:1, or reference.
    """
    output.apply()
    check_device(device)
    for flag, value in (
        ("--rate", 1 if rate is None else rate),
        ("--ticks", 1 if ticks is None else ticks),
        ("--per-row", per_row),
    ):
        if value < 1:
            raise UsageError(f"{flag} must be 1 or more, got {value}")
    recorded = Path(source).suffix == SUFFIX
    if what == "record" or (what == "serve" and not recorded):
        if rows is None and ticks is None:
            raise UsageError(
                f"scope {what} {source} needs rows", hint="give --in FILE, --in - for stdin, or --ticks alone"
            )
        from volumetric.cli.scope_run import Watched

        watched = Watched(
            model=source,
            rows=rows,
            ticks=ticks,
            per_row=per_row,
            clocked=clocked,
            batch=batch,
            row=row,
            every=every,
            edges=edges,
            device=device,
            files=files,
        )
        if what == "serve":
            return watched.serve(port, rate or 25) if out is None else _no_file()
        return watched.record(_written(source, out, SUFFIX))
    if rows is not None or ticks is not None or batch is not None:
        raise UsageError(f"scope {what} shows what was recorded: it takes no rows", hint="scope record runs a model")
    if what == "serve":
        from volumetric.cli.scope_run import replay

        return replay(Recording.open(source), port, rate or 25) if out is None else _no_file()
    from volumetric.viz.activity import save_film

    path, recording = _written(source, out, f".{what}"), Recording.open(source)
    with console.progress(f"drawing {describe(recording)}…"):
        save_film(recording, path, rate=rate)
    console.note(f"{describe(recording)}: drawn in {path}")
    return exits.OK


def _no_file() -> int:
    raise UsageError("scope serve writes no file", hint="leave --out out")


def _written(source: str, out: Path | None, suffix: str) -> Path:
    if out is not None and out.suffix != suffix:
        raise UsageError(f"--out {out} does not end in {suffix}")
    return out or Path(f"{Path(source).stem}{suffix}")
