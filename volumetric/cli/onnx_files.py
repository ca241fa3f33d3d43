"""The commands run, inspect and bench for ONNX files, which have inputs and outputs by name."""

from __future__ import annotations

import json
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.atomic import atomic_file
from volumetric.base.errors import CheckpointError
from volumetric.base.progress import byte_size
from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.run_outputs import LineSink
from volumetric.loaders.model_location import resolve

if TYPE_CHECKING:
    from volumetric.loaders.onnx_import.run_onnx import OnnxModel

SUFFIX = ".onnx"
_ROW_FILES = (".csv", ".parquet", ".npy")
_SHOWN = 12
"""Most operators that are shown; --json shows all."""


def onnx_path(model: str | None) -> Path | None:
    """Return the file if a model is an ONNX file, else None."""
    return resolve(model).weights if model is not None and model.endswith(SUFFIX) else None


def run_onnx(path: Path, rows: str | None, out: Path | None, device: str, header: bool | None = None) -> int:
    """Run the calls of a file through an ONNX model, and write its outputs.

    A .npz file is one call, an array for each input. A .csv, .parquet or .npy file is one call of a model with one
    input, and each of its rows becomes a line. A .jsonl file, or stdin, has a call in each line: an object of inputs,
    or the only input as a list.
    """
    from volumetric.loaders.onnx_import.run_onnx import load_onnx

    suffix = "" if rows is None else Path(rows).suffix
    if suffix and suffix not in (".npz", ".jsonl", *_ROW_FILES):
        raise UsageError(
            f"an ONNX model reads .npz, .jsonl, {', '.join(_ROW_FILES)}, got {rows}",
            hint="volumetric convert makes it a network, which also reads images and sounds",
        )
    with console.progress(f"loading {path.name} on {device}…"):
        model = load_onnx(path, device)
    if rows is not None and suffix in _ROW_FILES:
        calls: Iterable[Mapping[str, Any]] = [_rows_call(Path(rows), model, header)]
    else:
        calls = [_npz_call(Path(rows))] if rows is not None and suffix == ".npz" else _line_calls(rows, model)
    written: dict[str, list[Array]] = {}
    for call in calls:
        outputs = model.run(call)
        if out is None and suffix in _ROW_FILES:
            _write_rows(outputs, model.classes)
        elif out is None:
            lists = {name: value.tolist() for name, value in outputs.items()}
            console.write_json(lists if len(lists) > 1 else next(iter(lists.values())))
        for name, value in outputs.items() if out is not None else ():
            written.setdefault(name, []).append(value)
    if out is not None:
        _save(out, written)
    return exits.OK


def _rows_call(path: Path, model: OnnxModel, header: bool | None) -> Mapping[str, Array]:
    """Read the rows of a table or an array as the only input of a model."""
    from volumetric.train.csv_table import read_csv
    from volumetric.train.load_samples import read_npy
    from volumetric.train.table_objects import read_parquet

    if len(model.inputs) != 1:
        raise UsageError(
            f"{path} has rows of one input, the model has {', '.join(model.inputs)}", hint="pass a .npz file"
        )
    if path.suffix == ".npy":
        x = read_npy(path)
    else:
        table = read_csv(path, header) if path.suffix == ".csv" else read_parquet(path)
        x = table.numbers(range(len(table.columns)))
    sizes = (model.graph.inputs[0].shape or ())[1:]
    row = tuple(n for n in sizes if isinstance(n, int))
    if x.ndim and len(row) == len(sizes) and x.shape[1:] != row and prod(x.shape[1:]) == prod(row):
        x = x.reshape(len(x), *row)
    return {model.inputs[0]: x}


def _write_rows(outputs: Mapping[str, Array], classes: Sequence[str]) -> None:
    """Write a line for each row of the outputs, as for other models; one line if they have no common rows."""
    sizes = {value.shape[:1] for value in outputs.values()}
    if len(sizes) != 1 or sizes == {()}:
        console.write_json({name: value.tolist() for name, value in outputs.items()})
        return
    names = classes if all(value.shape[-1] == len(classes) for value in outputs.values()) else ()
    LineSink(names).take({name: value[None] for name, value in outputs.items()})


def _npz_call(path: Path) -> Mapping[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path} is no .npz file of arrays: {error}", hint="numpy.savez writes one") from None


def _line_calls(rows: str | None, model: OnnxModel) -> Iterator[Mapping[str, Any]]:
    if rows in (None, "-"):
        lines = sys.stdin
    else:
        try:
            lines = Path(rows).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{rows} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise CheckpointError(f"line {number} of {rows or 'stdin'} is not JSON: {error}") from None
        if not isinstance(value, dict):
            if len(model.inputs) != 1:
                raise CheckpointError(
                    f"line {number} must be an object of the inputs {', '.join(model.inputs)}",
                    hint='as in {"' + model.inputs[0] + '": [[0.5, 1.0]]}',
                )
            value = {model.inputs[0]: value}
        yield value


def _save(out: Path, written: Mapping[str, list[Array]]) -> None:
    """Write a .npz file: the outputs of one call, or those of several stacked."""
    arrays: dict[str, Array] = {}
    for name, values in written.items():
        if len({v.shape for v in values}) > 1:
            raise CheckpointError(f"the output {name!r} of the calls has several shapes", hint="leave --out out")
        arrays[name] = values[0] if len(values) == 1 else np.stack(values)
    with atomic_file(out) as handle:
        np.savez(handle, **arrays)  # pyright: ignore[reportArgumentType]  (names are of the outputs)


def inspect_onnx(path: Path, *, tensors: bool, as_json: bool) -> int:
    """Show the inputs, outputs, operators and arrays of an ONNX file."""
    from volumetric.loaders.onnx_import.read_onnx import read_onnx

    with console.progress(f"reading {path.name}…"):
        read = read_onnx(path)
    nbytes = sum(a.nbytes for a in read.arrays.values())
    types = Counter(a.dtype.name for a in read.arrays.values())
    operators = dict(Counter(read.operators).most_common())
    facts: dict[str, Any] = {
        "model": path.stem,
        "path": str(path),
        "producer": read.producer or "unknown",
        "opset": read.graph.opset,
        "inputs": {i.name: f"{i.dtype} [{', '.join(map(str, i.shape or ()))}]" for i in read.graph.inputs},
        "outputs": dict(read.graph.outputs),
        "operators": operators,
        "nodes": sum(operators.values()),
        "parameters": sum(a.size for a in read.arrays.values()),
        "size": nbytes,
        "dtypes": dict(types),
    }
    rows = [[name, "×".join(map(str, a.shape)), a.dtype.name, byte_size(a.nbytes)] for name, a in read.arrays.items()]
    if as_json:
        head = ("name", "shape", "dtype", "bytes")
        listed = [
            dict(zip(head, (name, list(a.shape), a.dtype.name, a.nbytes), strict=True))
            for name, a in read.arrays.items()
        ]
        console.write_json(facts | {"tensors": listed}, indent=2)
        return exits.OK
    most = list(operators.items())[:_SHOWN]
    more = len(operators) - len(most)
    facts["operators"] = ", ".join(f"{op} {n}" for op, n in most) + (f" … and {more} more" if more > 0 else "")
    facts["size"] = byte_size(nbytes)
    width = max(map(len, facts)) + 2
    console.write("".join(f"{name + ':':{width}}{_text(value)}\n" for name, value in facts.items()))
    if tensors:
        console.table(("tensor", "shape", "dtype", "size"), rows, right=("size",))
    return exits.OK


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


def bench_onnx(path: Path, device: str, *, batch: int, size: int, repeats: int, threads: int | None) -> int:
    """Measure an ONNX model on random inputs; an open first axis is `batch`, other open sizes are `size`."""
    from volumetric.loaders.onnx_import.run_onnx import load_onnx

    with console.progress(f"loading {path.name} on {device}…"):
        model = load_onnx(path, device, threads=threads)
    inputs = sample_inputs(model, batch, size)
    with console.progress(f"{path.name} on {model.device.info.name}…"):
        milliseconds = model.time(inputs, max(repeats, 1))
    shapes = ", ".join(f"{name} {'×'.join(map(str, a.shape))}" for name, a in inputs.items())
    row = [model.name, model.device.info.name, shapes, f"{milliseconds:.2f}", f"{1e3 / milliseconds:,.1f}"]
    head = ("model", "device", "inputs", "ms", "calls/s")
    console.write("| " + " | ".join(head) + " |\n| " + " | ".join("---" for _ in head) + " |\n")
    console.write("| " + " | ".join(row) + " |\n")
    return exits.OK


def sample_inputs(model: OnnxModel, batch: int, size: int) -> dict[str, Array]:
    """Return random inputs: numbers from 0 to 1, and integers 0 and 1."""
    draws = np.random.default_rng(0)
    inputs: dict[str, Array] = {}
    for declared in model.graph.inputs:
        open_sizes = [batch if i == 0 else size for i in range(len(declared.shape or ()))]
        shape = [n if isinstance(n, int) else m for n, m in zip(declared.shape or (), open_sizes, strict=True)]
        whole = "int" in declared.dtype or declared.dtype == "bool"
        inputs[declared.name] = draws.integers(0, 2, shape) if whole else draws.random(shape, np.float32)
    return inputs
