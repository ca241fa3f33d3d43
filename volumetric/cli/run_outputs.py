"""Outputs of streams as JSON lines, or as an array file in constant memory; and recordings of their activity."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.atomic import atomic_file
from volumetric.base.errors import CheckpointError
from volumetric.base.hints import write_hint
from volumetric.cli import console
from volumetric.cli.exits import UsageError
from volumetric.loaders import LoadedModel
from volumetric.network import OUTPUT, Network
from volumetric.observe.recorder import Recorder
from volumetric.observe.recording import SUFFIX

CLASS: Final = "class"
"""Key of the most likely class in a line."""

FILE: Final = "file"
"""Key of the file that a line is about."""


class Sink(Protocol):
    """Receives outputs by name, ``[batch, ticks, …]`` each."""

    def take(self, outputs: dict[str, Array]) -> None:
        """Receive some ticks."""
        ...


def class_names(loaded: LoadedModel) -> tuple[str, ...]:
    """Return the names of the classes if the output of a network is their logits, else nothing."""
    network, names = loaded.network, loaded.classes
    coord = network.taps.get(OUTPUT)
    if not names or coord is None or loaded.head is not None or CLASS in network.taps:
        return ()
    return names if network.shapes[coord][-1] == len(names) else ()


class LineSink:
    """Writes a JSON line for each tick to stdout: a list of several streams, an object of several outputs.

    With `classes`, a line has the name of the most likely one under ``"class"``; with `files`, one for each tick, its
    file under ``"file"``.
    """

    def __init__(self, classes: Sequence[str] = (), files: Sequence[str] = ()) -> None:
        self._classes, self._files = np.array(classes, object), iter(files)

    def take(self, outputs: dict[str, Array]) -> None:
        """Write the ticks."""
        if len(self._classes) and OUTPUT in outputs:
            outputs = {CLASS: self._classes[outputs[OUTPUT].argmax(-1)], **outputs}
        by_tick = {name: (y[0] if len(y) == 1 else y.swapaxes(0, 1)).tolist() for name, y in outputs.items()}
        ticks: list[Any] = [dict(zip(by_tick, values, strict=True)) for values in zip(*by_tick.values(), strict=True)]
        if len(by_tick) == 1:
            [ticks] = by_tick.values()
        files = list(islice(self._files, len(ticks)))
        if files:
            named = [tick if isinstance(tick, dict) else {OUTPUT: tick} for tick in ticks]
            ticks = [{FILE: file, **tick} for file, tick in zip(files, named, strict=True)]
        console.write("".join(console.json_text(tick) + "\n" for tick in ticks))


class ArraySink:
    """Collects outputs on disk, next to the ``.npz`` file that `finish` writes.

    Raises
    ------
    CheckpointError : the directory cannot be written
    """

    def __init__(self, path: Path, network: Network, batch: int) -> None:
        self._path = path
        self._shapes = {name: (batch, *network.shapes[coord][1:]) for name, coord in network.taps.items()}
        self._open = ExitStack()
        self._files: dict[str, Any] = {}
        self._ticks = 0

    def __enter__(self) -> Self:
        """Open the temporary files."""
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the collected outputs."""
        self._open.close()

    def _begin(self) -> None:
        """Open a file for each output."""
        try:
            folder = self._path.absolute().parent
            self._files = {}
            for name in self._shapes:
                self._files[name] = self._open.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115  (closed with the rest)
        except OSError as error:
            self._open.close()
            raise self._write_error(error) from error

    def take(self, outputs: dict[str, Array]) -> None:
        """Store the ticks; the first ones determine whether outputs are by port."""
        if outputs.keys() != self._shapes.keys():
            if self._ticks:
                raise UsageError(
                    "some rows are given by port, and others as a whole", hint="write all rows the same way"
                )
            self._shapes = {name: (y.shape[0], *y.shape[2:]) for name, y in outputs.items()}
            self._open.close()
            self._begin()
        try:
            for name, y in outputs.items():
                self._files[name].write(np.ascontiguousarray(y.swapaxes(0, 1), "<f4").data)
        except OSError as error:
            raise self._write_error(error) from error
        self._ticks += next(iter(outputs.values())).shape[1]

    def finish(self) -> None:
        """Write the file atomically: float32 ``[batch, ticks, …]`` for each output."""
        arrays: dict[str, Array] = {}
        for name, (batch, *shape) in self._shapes.items():
            arrays[name] = np.zeros((batch, 0, *shape), np.float32)
            if self._ticks:
                self._files[name].flush()
                stored = np.memmap(self._files[name], "<f4", "r", shape=(self._ticks, batch, *shape))
                arrays[name] = stored.swapaxes(0, 1)
        with atomic_file(self._path) as handle, zipfile.ZipFile(handle, "w") as archive:
            for name, array in arrays.items():  # numpy.savez refuses an array named "file"
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        console.note(f"{console.plural(self._ticks, 'tick')} written to {self._path}")

    def _write_error(self, error: OSError) -> CheckpointError:
        return CheckpointError(f"cannot write {self._path}: {error.strerror or error}", hint=write_hint(self._path))


FILMS = (".html", ".gif")


def check_recording(path: Path) -> None:
    """Raise `UsageError` unless a path is one of an animation or a recording."""
    if path.suffix not in (*FILMS, SUFFIX):
        raise UsageError(f"--record must end in one of {', '.join((*FILMS, SUFFIX))}, got {path}")


def save_recording(recorder: Recorder, name: str, path: Path, *, per_row: int = 1, device: str = "") -> None:
    """Write a recording, and print its length."""
    recording = recorder.recording(
        title=f"{name}: {console.plural(recorder.frame_count, 'tick')}", device=device, per_row=per_row
    )
    if path.suffix == SUFFIX:
        recording.save(path)
    else:
        from volumetric.viz.activity_film import save_film

        save_film(recording, path)
    rest = f"; {recording.meta.missed} more do not fit" if recording.meta.missed else ""
    console.note(f"{console.plural(len(recording), 'tick')} drawn in {path}{rest}")
