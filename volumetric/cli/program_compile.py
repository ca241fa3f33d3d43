"""The action ``program compile``: reduces the computation of a program, or of a network with programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.cli import console
from volumetric.cli.exits import UsageError
from volumetric.cli.overwriting import check_new

if TYPE_CHECKING:
    from volumetric.base._typing import Array
    from volumetric.loaders import LoadedModel
    from volumetric.program import Report


def compile_file(
    source: str, out: Path, *, options: Mapping[str, Any], rows: str | None, overwrite: bool, json: bool
) -> None:
    """Compile a file or directory, write the result, and print the changes.

    Parameters
    ----------
    source : ``*.json``: a program without weights; else an argument of `open_model`
    out : target of the same kind
    options : options of `volumetric.program.compile`
    rows : file of rows, see ``run``, after which constants are read
    overwrite : replace an existing target, and the files exported with it

    Raises
    ------
    UsageError : only one of both is a program file; rows are set for a program file; `out` exists
    VolumetricError : `source` cannot be read or compiled, or `out` cannot be written; both are the same
    """
    alone = Path(source).suffix == ".json"
    if alone != (out.suffix == ".json"):
        which = (source, str(out)) if alone else (str(out), source)
        raise UsageError(
            f"{which[0]} is a program without weights, {which[1]} is not",
            hint="compile a file to a file, or a model to a directory",
        )
    if alone and (rows is not None or options["after"] is not None):
        raise UsageError(f"{source} has no weights, so that it cannot run rows", hint="pass a model's directory")
    check_new(out, source, overwrite=overwrite)
    if not alone:
        check_new(_exported(out), source, overwrite=overwrite)
    reports, frozen = _program(source, out, options) if alone else _model(source, out, options, rows)
    if json:
        report_dicts = {name: report.to_dict() for name, report in reports.items()}
        console.write_json({"reports": report_dicts, "frozen": list(frozen)}, indent=2)
        return
    for name, report in reports.items():
        if name:
            console.write(f"{name}:\n")
        console.write("".join(f"{line}\n" for line in _lines(report)))
    if frozen:
        console.write(f"frozen: {console.plural(len(frozen), 'tensor')} of regions that do not change\n")


def _program(source: str, out: Path, options: Mapping[str, Any]) -> tuple[dict[str, Report], tuple[str, ...]]:
    from volumetric.program import compile as compiled
    from volumetric.program import read_program, save_program

    compilation = compiled(read_program(source), **options)
    save_program(out, compilation.program)
    return {"": compilation.report}, compilation.frozen


def _model(
    source: str, out: Path, options: Mapping[str, Any], rows: str | None
) -> tuple[dict[str, Report], tuple[str, ...]]:
    """Compile the model at `source` and save it in `out`; return reports by layer and the frozen tensors' names."""
    from volumetric.base.errors import SpecError
    from volumetric.loaders import open_model, save_exported, save_native
    from volumetric.loaders.native_facts import NativeFacts
    from volumetric.program.compiling import compile_network

    with console.progress(f"reading {source}…"):
        loaded = open_model(source, offline=True)
    if loaded.clocked is not None:
        raise SpecError(
            f"{source}: a clocked network cannot be compiled", hint="compile its program before you make it clocked"
        )
    if loaded.inputs is not None and options.get("drop_inputs"):
        raise SpecError(
            f"{source}: its inputs are standardised column by column, and cannot be dropped",
            hint="leave --drop-inputs out",
        )
    row_arrays = None if rows is None else _rows(loaded, rows)
    compilation = compile_network(loaded.network, loaded.params, **options, rows=row_arrays)
    facts = NativeFacts(
        context_length=loaded.context_length,
        inputs=loaded.inputs,
        classes=loaded.classes,
        features=() if options.get("drop_inputs") else loaded.features,
    )
    save_native(out, compilation.network, compilation.params, facts=facts)
    for coord, exported in compilation.exported.items():
        folder = _exported(out)
        folder = folder if len(compilation.network.layers) == 1 else folder / str(coord)
        save_exported(folder, exported)
        console.note(f"{len(exported):,} regions exported in {folder}")
    reports = {str(coord): report for coord, report in compilation.reports.items()}
    return (reports if len(compilation.network.layers) > 1 else {"": next(iter(reports.values()))}), compilation.frozen


def _exported(out: Path) -> Path:
    """Return the directory of exported regions of a compiled model."""
    return out.with_name(f"{out.name}.exported")


def _rows(loaded: LoadedModel, rows: str) -> dict[str, Array]:
    """Return the rows of a file, by input, standardised as in training."""
    from volumetric.cli.interrupts import StopRequest
    from volumetric.cli.run import rows_of, standardise_rows

    with ExitStack() as opened:
        chunks, batch = rows_of(rows, None, loaded, None, opened, StopRequest())
        if batch != 1:
            raise UsageError(f"{rows} has rows of {batch} streams, expected one stream")
        read = list(chunks)
    if any(chunk.resets is not None and np.any(chunk.resets) for chunk in read):
        raise UsageError(
            f"{rows} has resets", hint="pass rows of one sequence, up to the row after which constants are read"
        )
    parts = [standardise_rows(loaded, chunk).x for chunk in read if chunk.count]
    if not parts:
        raise UsageError(f"{rows} has no rows")
    return {name: np.concatenate([part[name][0] for part in parts]) for name in parts[0]}


def _lines(report: Report) -> Iterator[str]:
    after = asdict(report.after)
    names = {"state": "numbers kept of a stream"}
    width = max(len(names.get(name, name)) for name in after) + 2
    for name, count in asdict(report.before).items():
        now = after[name]
        changed = f"{count:,} → {now:,}" + (f" ({(now - count) / count:+.0%})" if count else "")
        yield f"{names.get(name, name) + ':':{width}}{changed if now != count else f'{count:,}'}"
    yield from map(str, report.notes)
