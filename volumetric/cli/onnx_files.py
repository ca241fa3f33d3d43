"""The commands run, inspect and bench for ONNX files, which have inputs and outputs by name."""

from __future__ import annotations

import json
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.atomic import atomic_file
from volumetric.base.errors import CheckpointError
from volumetric.base.progress import byte_size
from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.loaders.model_location import resolve

if TYPE_CHECKING:
    from volumetric.loaders.onnx_import.run_onnx import OnnxModel

SUFFIX = ".onnx"
_SHOWN = 12
"""Most operators that are shown; --json shows all."""


def onnx_path(model: str | None) -> Path | None:
    """Return the file if a model is an ONNX file, else None."""
    return resolve(model).weights if model is not None and model.endswith(SUFFIX) else None


def run_onnx(path: Path, rows: str | None, out: Path | None, device: str) -> int:
    """Run the calls of a file through an ONNX model, and write its outputs.

    A .npz file is one call, an array for each input. A .jsonl file, or stdin, has a call in each line: an object of
    inputs, or the only input as a list.
    """
    from volumetric.loaders.onnx_import.run_onnx import load_onnx

    if rows is not None and rows.endswith(".csv"):
        raise UsageError("an ONNX model needs its inputs by name", hint="--in FILE.npz, or a .jsonl file of objects")
    with console.progress(f"loading {path.name} on {device}…"):
        model = load_onnx(path, device)
    calls = [_npz_call(Path(rows))] if rows is not None and rows.endswith(".npz") else _line_calls(rows, model)
    written: dict[str, list[Array]] = {}
    for call in calls:
        outputs = model.run(call)
        if out is None:
            lists = {name: value.tolist() for name, value in outputs.items()}
            console.write(json.dumps(lists if len(lists) > 1 else next(iter(lists.values()))) + "\n")
        for name, value in outputs.items() if out is not None else ():
            written.setdefault(name, []).append(value)
    if out is not None:
        _save(out, written)
    return exits.OK


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
