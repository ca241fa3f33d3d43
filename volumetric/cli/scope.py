"""The command ``scope``: the activity of layers while a network runs, as recordings, animations, and a live page."""

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
    """Record the activity of layers while a network runs, draw it, or show it live to browsers on this machine.

    scope record MODEL --in rows.npz writes a .scope file; scope gif and scope html draw one; scope serve shows one, or
    a running model, in a browser: GET / is the page, GET /scene describes the network, GET /ticks streams a frame for
    each tick as server-sent events.
    docs/activity.md has more.

    Parameters
    ----------
    what : {"record", "gif", "html", "serve"}
        The action.
    source : str
        With record a model, see run; with gif and html a .scope file; with serve either.
    out : path
        File to write; default: the source's name with another ending, in the current directory.
    rows : str
        Rows of the model, see run: a .npz, .jsonl or .csv file, or - for stdin.
    ticks : int
        Clocked networks: ticks after the last row, in which the inputs keep their values.
    per_row : int
        Clocked networks: ticks for each row.
    clocked : bool
        Run tick by tick; --no-clocked: row by row. Default: from the model.
    batch : int
        Parallel streams, see run.
    row : int
        Index of the recorded stream, from 0.
    every : int
        Ticks or rows per frame.
    edges : int
        Most edges in the scene.
    rate : int
        Frames a second of animations and when serving; default: 25, or fewer in an animation shorter than two seconds.
    port : int
        TCP port to serve on; 0 chooses a free one.
    device : str
        Device of the model: auto, cpu, gpu, gpu:1, or reference.
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
                f"scope {what} {source} needs rows", hint="add --in FILE, --in - for stdin, or only --ticks"
            )
        from volumetric.cli.scope_run import ScopeRun

        watched = ScopeRun(
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
        return watched.record(_output_path(source, out, SUFFIX))
    if rows is not None or ticks is not None or batch is not None:
        raise UsageError(f"scope {what} shows a recording: it cannot run rows", hint="scope record runs a model")
    if what == "serve":
        from volumetric.cli.scope_run import replay

        return replay(Recording.open(source), port, rate or 25) if out is None else _no_file()
    from volumetric.viz.activity_film import save_film

    path, recording = _output_path(source, out, f".{what}"), Recording.open(source)
    with console.progress(f"drawing {describe(recording)}…"):
        save_film(recording, path, rate=rate)
    console.note(f"{describe(recording)}: drawn in {path}")
    return exits.OK


def _no_file() -> int:
    raise UsageError("scope serve writes no file", hint="remove --out")


def _output_path(source: str, out: Path | None, suffix: str) -> Path:
    if out is not None and out.suffix != suffix:
        raise UsageError(f"--out must end in {suffix}, got {out}")
    return out or Path(f"{Path(source).stem}{suffix}")
