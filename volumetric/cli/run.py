"""The command ``run``: a stream of rows through a network."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from volumetric.base._typing import Array
from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError
from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.interrupts import Stopped, StopRequest, stop_between
from volumetric.cli.options import OutputOptions, SourceOptions, check_device
from volumetric.cli.run_outputs import ArraySink, LineSink, Sink, check_recording, class_names, save_recording
from volumetric.cli.run_rows import CHUNK, ArrayRows, line_chunks
from volumetric.clocked import Clocked
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.devices.named_devices import open_device
from volumetric.loaders import LoadedModel, open_model
from volumetric.loaders.regular_file import open_regular
from volumetric.network import INPUT, OUTPUT, Network
from volumetric.observe.recorder import MOST, Recorder
from volumetric.run.device import RunOptions
from volumetric.run.streams import RowStream, open_stream
from volumetric.run.streams.stream_chunks import StreamChunk
from volumetric.run.streams.stream_io import inputs_by_port, outputs_by_port
from volumetric.train.image_folders import IMAGE_SUFFIXES

_ROWS: Final = (".npz", ".npy", ".csv", ".parquet", ".jsonl", ".wav", *IMAGE_SUFFIXES)


def run(
    model: str,
    *,
    rows: Annotated[str | None, Parameter(name="--in", allow_leading_hyphen=True)] = None,
    ticks: int | None = None,
    per_row: int = 1,
    clocked: bool | None = None,
    state: Path | None = None,
    batch: int | None = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    record: Path | None = None,
    header: bool | None = None,
    context: Annotated[int | None, Parameter(name=["--context", "-c"])] = None,
    device: Annotated[str, Parameter(name=["--device", "-dev"])] = "auto",
    source: SourceOptions = SourceOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Run a stream of rows through a network, row by row or tick by tick, and write its outputs.

    An ONNX file takes calls instead of rows: a .npz file with an array for each input, or a JSON object of them in each
    line. With one input, all rows of a .csv, .parquet or .npy file are one call.
    Ctrl-C ends the stream after the current rows, and its state is written to --state. docs/clocked.md has more.

    Parameters
    ----------
    model : str
        A directory that train, evolve or save_native has written, or any other model, see generate.
    rows : str
        A .npz file with arrays [B, T, …] or [T, …] by input, or by the ports of a program or fabric; a .jsonl file with
        a row per line, a list or an object by input or port, in which "reset": true restarts the stream; a .csv,
        .parquet or .npy file; an image, a WAV file or a folder of them (docs/data.md); or - for stdin: JSON lines,
        which are processed as they arrive, or a CSV table. Default: stdin, or no rows with --ticks.
        Files of volumetric train work, too: of a .npz file the inputs are read, of a .csv file the columns that the
        model was trained on, by name.
    ticks : int
        Clocked networks: ticks after the last row, in which the inputs keep their values.
    per_row : int
        Clocked networks: ticks for each row.
    clocked : bool
        Run tick by tick; --no-clocked: row by row. Default: clocked if the model has a clocked.json.
    state : path
        File with the state of the streams: loaded at the start if it exists, and saved at the end.
    batch : int
        Parallel streams; a line then has a row for each. Default: those of the .npz file, else 1.
    out : path
        A .npz file to write, with an array [B, ticks, …] for each output, or for each port if rows are given by port.
        Default: JSON lines on stdout, each the output, an object of several outputs, or for a model with classes an
        object with the most likely class and the output; for a folder, with the file.
    record : path
        File for the activity of every layer of the first stream after each tick or row: an animation, .html or .gif, or
        a recording, .scope (see volumetric scope).
    header : bool
        Whether the first line of a .csv file has column names. Default: yes if it has text where all other lines have
        numbers.
    context : int
        Most rows of a stream for layers such as attention; default: 2048.
    device : str
        auto, cpu, gpu, gpu:1, or reference. auto is the device in VOLUMETRIC_DEVICE, else the best GPU, else the CPU.
    """
    output.apply()
    check_device(device)
    _check(rows, ticks, per_row, batch, out, header)
    if record is not None:
        check_recording(record)
    if model.endswith(".onnx"):
        return _run_onnx(model, rows, out, device, header, {"--ticks": ticks, "--state": state, "--record": record})
    with console.progress(f"reading {model}…"):
        loaded = open_model(model, source.dtype, offline=source.offline, strict=source.strict, guess=source.guessed())
    machine = machine_of(loaded, clocked)
    tick_flags = {"--ticks": ticks is not None, "--per-row": per_row != 1}
    if not isinstance(machine, Clocked) and any(tick_flags.values()):
        flag = next(name for name, is_set in tick_flags.items() if is_set)
        raise UsageError(
            f"{flag} applies only to networks that run tick by tick", hint="add --clocked to run a network tick by tick"
        )
    stopping = StopRequest()
    if isinstance(machine, Clocked) and context is not None:
        raise UsageError(
            "--context applies only to networks that run row by row",
            hint="add --no-clocked to run a network row by row",
        )
    options = None if context is None else RunOptions(context=context)
    with ExitStack() as opened:
        chunks, streams = rows_of(
            rows, ticks, loaded, batch, opened, stopping, header=header, afresh=not isinstance(machine, Clocked)
        )
        with console.progress(f"loading {loaded.name} on {device}…"):
            stream = open_stream(open_device(device), machine, loaded.params, batch=streams, options=options)
        if state is not None and state.exists():
            _restore(stream, state)
        recorder = None if record is None else Recorder(stream, most=MOST)
        runner = recorder or stream
        sink: Sink = LineSink(class_names(loaded), _files(rows))
        if out is not None:
            sink = opened.enter_context(ArraySink(out, loaded.network, streams))
        rows_read = 0
        with stop_between(stopping, "these rows"), contextlib.suppress(Stopped):
            for chunk in chunks:
                rows_read += chunk.count
                outputs = advance(runner, standardise_rows(loaded, chunk), per_row)
                sink.take(_outputs(outputs, loaded.network, chunk))
                if stopping.requested:
                    break
            for start in () if stopping.requested else range(0, ticks or 0, CHUNK):
                last = StreamChunk(x={}, count=min(CHUNK, (ticks or 0) - start))
                sink.take(_outputs(advance(runner, last, 1), loaded.network, last))
                if stopping.requested:
                    break
        if not rows_read and rows in (None, "-") and ticks is None and not stopping.requested:
            console.note("stdin had no rows: nothing was run")
        if isinstance(sink, ArraySink):
            sink.finish()
        if recorder is not None and record is not None:
            recorder.close()
            save_recording(recorder, loaded.name, record, per_row=per_row, device=device)
        if state is not None:
            write_atomic(state, stream.save())
    return exits.INTERRUPTED if stopping.requested else exits.OK


def _run_onnx(
    model: str,
    rows: str | None,
    out: Path | None,
    device: str,
    header: bool | None,
    refused: dict[str, object],
) -> int:
    from volumetric.cli.onnx_files import onnx_path, run_onnx

    flag = next((flag for flag, value in refused.items() if value is not None), None)
    if flag is not None:
        raise UsageError(
            f"{flag} does not apply to ONNX files", hint="volumetric convert MODEL.onnx DIRECTORY makes it a network"
        )
    path = onnx_path(model)
    return exits.OK if path is None else run_onnx(path, rows, out, device, header)


def _check(
    rows: str | None, ticks: int | None, per_row: int, batch: int | None, out: Path | None, header: bool | None
) -> None:
    """Raise `UsageError` for flags that are invalid for any model."""
    for flag, value in (("--ticks", ticks), ("--per-row", per_row), ("--batch", batch)):
        if value is not None and value < 1:
            raise UsageError(f"{flag} must be 1 or more, got {value}")
    if rows is not None and rows != "-" and Path(rows).suffix.lower() not in _ROWS and not Path(rows).is_dir():
        raise UsageError(
            f"--in must end in one of {', '.join(_ROWS)}, or be a folder, got {rows}",
            hint="--in - reads JSON lines or CSV from stdin",
        )
    if header is not None and rows not in (None, "-") and Path(rows).suffix != ".csv":
        raise UsageError("--header applies only to .csv files", hint="leave it out, or add --in FILE.csv")
    if out is not None and out.suffix != ".npz":
        raise UsageError(f"--out must end in .npz, got {out}", hint="without --out, JSON lines go to stdout")
    if rows in (None, "-") and (rows or ticks is None) and sys.stdin.isatty():
        raise UsageError("no rows", hint="pass --in FILE, JSON lines or CSV on stdin, or only --ticks")


def machine_of(loaded: LoadedModel, clocked: bool | None) -> Network | Clocked:
    """Return the network to run: clocked or not by its files, unless the flag overrides them."""
    if clocked is None:
        return loaded.clocked or loaded.network
    return loaded.clocked or Clocked(network=loaded.network) if clocked else loaded.network


def rows_of(
    rows: str | None,
    ticks: int | None,
    loaded: LoadedModel,
    batch: int | None,
    opened: ExitStack,
    stopping: StopRequest,
    *,
    header: bool | None = None,
    afresh: bool = False,
) -> tuple[Iterator[StreamChunk], int]:
    """Return the rows, and the number of streams.

    Parameters
    ----------
    header : whether a CSV file has a line of names; None: see `read_csv`
    afresh : streams are reset at each sample, if rows are samples of a training file
    """
    if rows is None and ticks is not None:
        return iter(()), batch or 1
    network = loaded.network
    if rows not in (None, "-") and not rows.endswith(".jsonl"):
        from volumetric.cli.run_files import file_arrays

        path = Path(rows)
        arrays = ArrayRows(file_arrays(path, loaded, header, afresh), path, network)
        if batch not in (None, arrays.batch):
            raise UsageError(f"{rows} has rows of {arrays.batch} streams, --batch is {batch}", hint="leave --batch out")
        return arrays.chunks(), arrays.batch
    streams = batch or 1
    if rows not in (None, "-"):
        handle = opened.enter_context(open_regular(rows))
        return line_chunks(handle.read, rows, network, streams, stopping.waiting), streams
    from volumetric.cli.run_stdin import stdin_chunks

    stdin: Any = sys.stdin.buffer
    return stdin_chunks(stdin.read1, loaded, streams, stopping.waiting, header=header, afresh=afresh), streams


def _files(rows: str | None) -> list[str]:
    """Return the files of a folder of images or sounds, one for each row; nothing if the rows are others."""
    if rows is None or not Path(rows).is_dir():
        return []
    from volumetric.cli.run_files import media_files

    return [str(file) for file in media_files(Path(rows))]


def _restore(stream: RowStream | ClockedStream, path: Path) -> None:
    try:
        with open_regular(path) as handle:
            stream.restore(handle.read())
    except CheckpointError as error:
        raise CheckpointError(
            f"{path}: {error}", hint="use the model that it was saved with, or another FILE"
        ) from None


def advance(stream: RowStream | ClockedStream | Recorder, chunk: StreamChunk, per_row: int) -> Array | dict[str, Array]:
    """Run rows, or ticks."""
    return stream.advance(chunk) if isinstance(stream, RowStream) else stream.advance(chunk, per_row=per_row)


def _outputs(outputs: Array | dict[str, Array], network: Network, chunk: StreamChunk) -> dict[str, Array]:
    """Return outputs by name, and by port if rows were given by port."""
    named = outputs if isinstance(outputs, dict) else {OUTPUT: outputs}
    if named.keys() != {OUTPUT} or not chunk.x:
        return named
    parts = outputs_by_port(network, chunk.x, named)
    return parts if isinstance(parts, dict) else named


def standardise_rows(loaded: LoadedModel, chunk: StreamChunk) -> StreamChunk:
    """Return rows standardised as in training."""
    if loaded.inputs is None or not chunk.x:
        return chunk
    port_rows = inputs_by_port(loaded.network, chunk.x, len(next(iter(chunk.x.values()))))
    if INPUT not in port_rows:
        return chunk
    x = port_rows[INPUT]
    scaled = loaded.inputs.apply(x.reshape(-1, *x.shape[2:])).reshape(x.shape)
    return replace(chunk, x={**port_rows, INPUT: scaled})
