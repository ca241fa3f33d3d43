"""The command ``program``: check, compile, draw and compare programs, and exchange them with another package."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.options import OutputOptions
from volumetric.cli.overwriting import Overwrite, check_new


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
    """Check, compile, draw or compare programs, or import or export one of canvas-engineering.

    program check x.program.json lists all errors, and exits with 1 if there are any. program compile MODEL -o DIRECTORY
    writes a model with the same outputs and less computation, and lists the removed parts with reasons; from
    x.program.json it writes another program, without weights. program draw x.program.json -o x.svg draws regions, edges
    and clocks; program draw MODEL --in rows.npz draws which of them fired during a run of a model that ends with a
    program. program diff a.program.json b.program.json lists differences, and whether a's weights load into b. program
    import canvas.json -o x.program.json converts a file of canvas-engineering 0.5.0, and lists unsupported parts on
    stderr; program export x.program.json converts back. docs/programs.md has more.

    Parameters
    ----------
    what : {"check", "compile", "draw", "diff", "import", "export"}
        The action.
    files : str
        One file to check, compile, draw, import or export, two to compare; a model's directory to compile or draw.
    out : path
        With compile, import and export: file to write; default for the last two: stdout. With draw: a .svg, .png or
        .pdf file; default: the source's name with .svg, in the current directory.
    heads : int
        With import: attention heads, which those files do not contain.
    operators : bool
        With import: operators have the rule and write mode that the package documents; --no-operators: they are only
        labels, as its version 0.5.0 treats them.
    deploy : bool
        With compile: for inference only; --no-deploy keeps the parts that regions need for learning.
    outputs : str
        With compile: names of outputs to keep, separated by commas; default: all.
    drop_inputs : bool
        With compile: also remove inputs that no output depends on, which moves the columns of others.
    after : int
        With compile: constant regions get their values after this many rows of zeros; default: when they settle.
    constants : str
        With compile: a .npz or .jsonl file with rows of one stream, see run: constant regions get their values after
        these rows.
    rows : str
        With draw: rows of a model, see run: a .npz or .jsonl file, or - for stdin.
    row : int
        With draw: index of the stream, from 0.
    meters : str
        With draw: meters whose curves are drawn, region.kind separated by commas, or none; default: those that clocks
        read.
    device : str
        With draw: device of the model: auto, cpu, gpu, gpu:1, or reference.
    overwrite : bool
        With compile, import and export: replace existing files.
    json : bool
        With check, compile and diff: print one JSON object.
    """
    output.apply()
    count = 2 if what == "diff" else 1
    if len(files) != count:
        raise UsageError(f"program {what} takes {count} {'files' if count > 1 else 'file'}, got {len(files)}")
    if what != "import" and (heads != 4 or not operators):
        raise UsageError("--heads and --no-operators apply only to program import")
    if what != "compile" and (not deploy or outputs is not None or drop_inputs or (after, constants) != (None, None)):
        raise UsageError("--no-deploy, --outputs, --drop-inputs, --after and --rows apply only to program compile")
    if what in ("check", "diff") and out is not None:
        raise UsageError(f"program {what} writes no file", hint="--json prints one JSON object")
    if what != "draw" and (rows is not None or row or meters is not None):
        raise UsageError("--in, --row and --meters apply only to program draw")
    if overwrite and what not in ("compile", "import", "export"):
        raise UsageError("--overwrite applies only to program compile, import and export")
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
    from volumetric.program.describe import problems, unseen_inputs
    from volumetric.program.program_diff import parameters_of

    read = read_program(path)
    faults = problems(read)
    warnings = [] if faults else [f"no output depends on input {name!r}" for name in unseen_inputs(read)]
    if json:
        console.write_json({"program": path, "problems": faults, "warnings": warnings}, indent=2)
    else:
        lines = [f"problem: {problem}" for problem in faults]
        if not faults:
            count = sum(prod(shape) for shape in parameters_of(read).values())
            lines = [f"{count:,} parameters ({byte_size(4 * count)})", "it can run"]
            lines += [f"warning: {warning}" for warning in warnings]
        console.write("\n".join([f"{path}: {parts_of(read)}", *lines]) + "\n")
    return exits.FAILED if faults else exits.OK


def _compile(
    path: str, out: Path | None, options: dict[str, Any], *, rows: str | None, overwrite: bool, json: bool
) -> int:
    from volumetric.cli.program_compile import compile_file

    if out is None:
        raise UsageError("program compile writes a program or a network", hint="set the path: -o PATH")
    compile_file(path, out, options=options, rows=rows, overwrite=overwrite, json=json)
    return exits.OK


def _diff(a: str, b: str, *, json: bool) -> int:
    from volumetric.program import compatible, read_program
    from volumetric.program.program_diff import MISSING

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
