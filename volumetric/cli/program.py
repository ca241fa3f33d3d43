"""The verb ``program``: check programs, compile and draw them, compare two, and exchange them with another package."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.options import OutputOptions
from volumetric.cli.targets import Overwrite, check_new


def program(
    what: Literal["check", "compile", "draw", "diff", "import", "export"],
    /,
    *files: str,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    heads: int = 4,
    operators: bool = True,
    deploy: bool = True,
    outputs: Annotated[str | None, Parameter(show_default=False)] = None,
    drop_inputs: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    after: Annotated[int | None, Parameter(show_default=False)] = None,
    constants: Annotated[str | None, Parameter(name="--rows", show_default=False)] = None,
    rows: Annotated[str | None, Parameter(name="--in", allow_leading_hyphen=True)] = None,
    row: int = 0,
    meters: Annotated[str | None, Parameter(name="--meters")] = None,
    device: Annotated[str, Parameter(name=["--device", "-dev"])] = "auto",
    overwrite: Overwrite = False,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Check, compile or draw a program, tell how two differ, or import or export one of canvas-engineering.

    program check x.program.json tells all that keeps it from being run, and exits with 1 if there is something. program
    compile MODEL -o DIRECTORY writes what hands out the same with less to compute, and tells what went and why; of
    x.program.json it writes another one, without weights. program draw x.program.json -o x.svg draws regions, edges and
    clocks; program draw MODEL --in rows.npz what fired while a model that ends with a program ran. program diff
    a.program.json b.program.json lists differences, and whether what a has learned loads into b. program import
    canvas.json -o x.program.json writes what a file of canvas-engineering 0.5.0 says, and tells on stderr what it
    cannot mean; program export x.program.json goes the other way. docs/programs.md has more.

    Parameters
    ----------
    what : {"check", "compile", "draw", "diff", "import", "export"}
        What to do.
    files : str
        One file to check, compile, draw, import or export, two to compare; a model's directory to compile or draw.
    out : path
        With compile, import and export: what to write; with the last two stdout unless given. With draw: .svg, .png or
        .pdf; the source's name with .svg, in the current directory, unless given.
    heads : int
        With import: heads of attention, which those files do not tell.
    operators : bool
        With import: operators have the rule and way of writing that the package documents; --no-operators: they are
        words, as its version 0.5.0 treats them.
    deploy : bool
        With compile: it will not learn any more; --no-deploy keeps what regions learn by.
    outputs : str
        With compile: names of outputs to keep, with commas between; all unless given.
    drop_inputs : bool
        With compile: inputs that no output depends on go too, which moves the columns of others.
    after : int
        With compile: regions to be constants are what they hold after so many rows of zeros; once settled unless given.
    constants : str
        With compile: a .npz or .jsonl file of rows of one stream, as of run: regions to be constants are what they hold
        after these.
    rows : str
        With draw: rows of a model, as of run: a .npz or .jsonl file, or - for stdin.
    row : int
        With draw: which of the streams side by side, from 0.
    meters : str
        With draw: meters whose curves are drawn, region.kind with commas between, or none; those that clocks read
        unless given.
    device : str
        With draw: where the model runs: auto, cpu, gpu, gpu:1, or reference.
    overwrite : bool
        With compile, import and export: replace what is there.
    json : bool
        With check, compile and diff: print one JSON object.
    """
    output.apply()
    count = 2 if what == "diff" else 1
    if len(files) != count:
        raise UsageError(f"program {what} takes {count} {'files' if count > 1 else 'file'}, got {len(files)}")
    if what != "import" and (heads != 4 or not operators):
        raise UsageError("--heads and --no-operators are of program import")
    if what != "compile" and (not deploy or outputs is not None or drop_inputs or (after, constants) != (None, None)):
        raise UsageError("--no-deploy, --outputs, --drop-inputs, --after and --rows are of program compile")
    if what in ("check", "diff") and out is not None:
        raise UsageError(f"program {what} writes no file", hint="--json prints one JSON object")
    if what != "draw" and (rows is not None or row or meters is not None):
        raise UsageError("--in, --row and --meters are of program draw")
    if overwrite and what not in ("compile", "import", "export"):
        raise UsageError("--overwrite is of program compile, import and export")
    if what == "compile":
        named = None if outputs is None else tuple(name.strip() for name in outputs.split(",") if name.strip())
        options = {"deploy": deploy, "outputs": named, "drop_inputs": drop_inputs, "after": after}
        return _compile(files[0], out, options, rows=constants, overwrite=overwrite, json=json)
    if what == "draw":
        from volumetric.cli.program_draw import draw

        return draw(files[0], out, rows=rows, row=row, meters=meters, device=device)
    if what == "export":
        return _export(files[0], out, overwrite=overwrite)
    if what == "import":
        return _import(files[0], out, heads=heads, operators=operators, overwrite=overwrite)
    return _diff(*files, json=json) if what == "diff" else _check(files[0], json=json)


def _check(path: str, *, json: bool) -> int:
    from volumetric.base.progress import byte_size
    from volumetric.cli.inspect_program import parts_of
    from volumetric.program import read_program
    from volumetric.program.compare import parameters_of
    from volumetric.program.describe import problems, unseen_inputs

    read = read_program(path)
    faults = problems(read)
    warnings = [] if faults else [f"no output depends on input {name!r}" for name in unseen_inputs(read)]
    if json:
        console.write_json({"program": path, "problems": faults, "warnings": warnings}, indent=2)
    else:
        lines = [f"problem: {problem}" for problem in faults]
        if not faults:
            count = sum(prod(shape) for shape in parameters_of(read).values())
            lines = [f"{count:,} parameters ({byte_size(4 * count)})", "nothing keeps it from being run"]
            lines += [f"warning: {warning}" for warning in warnings]
        console.write("\n".join([f"{path}: {parts_of(read)}", *lines]) + "\n")
    return exits.FAILED if faults else exits.OK


def _compile(
    path: str, out: Path | None, options: dict[str, Any], *, rows: str | None, overwrite: bool, json: bool
) -> int:
    from volumetric.cli.program_compile import compile_file

    if out is None:
        raise UsageError("program compile writes a program or a network", hint="name it: -o PATH")
    compile_file(path, out, options=options, rows=rows, overwrite=overwrite, json=json)
    return exits.OK


def _diff(a: str, b: str, *, json: bool) -> int:
    from volumetric.program import compatible, read_program
    from volumetric.program.compare import MISSING

    compatibility = compatible(read_program(a), read_program(b))
    if not json:
        console.write(f"{compatibility}\n")
        return exits.OK
    described: list[dict[str, Any]] = []
    for change in compatibility.changes:
        ends = {"before": change.before, "after": change.after}
        sides = {name: value for name, value in ends.items() if value is not MISSING}
        conflict = change in compatibility.conflicts
        described.append({"of": change.of, "name": change.name, "field": change.field, **sides, "conflict": conflict})
    report = {"verdict": compatibility.verdict, "changes": described, "lost": list(compatibility.lost)}
    console.write_json(report, indent=2)
    return exits.OK


def _export(path: str, out: Path | None, *, overwrite: bool) -> int:
    from volumetric.base.atomic import write_atomic
    from volumetric.program import export_canvas, read_program

    if out is not None:
        check_new(out, path, overwrite=overwrite)
    exported = export_canvas(read_program(path))
    for line in exported.lost:
        console.note(f"lost: {line}")
    if out is None:
        console.write(exported.text)
    else:
        write_atomic(out, exported.text.encode())
    return exits.OK


def _import(path: str, out: Path | None, *, heads: int, operators: bool, overwrite: bool) -> int:
    from volumetric.base.errors import SpecError
    from volumetric.program import import_canvas, save_program
    from volumetric.program.files import read_bytes

    if out is not None:
        check_new(out, path, overwrite=overwrite)
    try:
        imported = import_canvas(read_bytes(path), operators=operators, heads=heads)
    except SpecError as error:
        raise SpecError(f"{path}: {error}", hint=error.hint) from None
    for line in imported.notes:
        console.note(line)
    if out is None:
        console.write(imported.program.to_json())
    else:
        save_program(out, imported.program)
    return exits.OK
