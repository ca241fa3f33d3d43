"""Reads the files of a training run, also while another process still writes them."""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from volumetric.base.errors import CheckpointError, SpecError, VolumetricError
from volumetric.base.growing_lines import GrowingLines
from volumetric.scope.training_record import TrainingRecord
from volumetric.scope.training_settings import checkpoint_facts

MOST_BYTES: Final = 1 << 30
"""Bytes of a file that are read at most."""
_LONG_AGO: Final = 24 * 3600.0


class RunFiles:
    """The files of one run: its directory, or one file of its history.

    Parameters
    ----------
    path : directory that ``volumetric train`` writes, or a ``history.jsonl``, ``history.csv`` or ``layers.jsonl``
    record : takes the events

    Raises
    ------
    SpecError : there is nothing of a training run
    """

    def __init__(self, path: Path, record: TrainingRecord) -> None:
        self.path: Path = path
        self.record: TrainingRecord = record
        self._damaged: dict[str, tuple[int, int]] = {}
        self._closed: set[Path] = set()
        self._checkpoint: tuple[str, int] | None = None
        self._columns: list[str] = []
        self._lines: dict[Path, GrowingLines] = {}
        if not path.exists():
            raise SpecError(f"{path} does not exist", hint="pass the directory that volumetric train writes")
        if not any(one.is_file() for one in self._paths()) and not self._checkpoints():
            raise SpecError(
                f"{path} has no history of training",
                hint="pass a directory with history.jsonl or checkpoints, as volumetric train writes it",
            )

    def _paths(self) -> list[Path]:
        if not self.path.is_dir():
            return [self.path]
        jsonl, table = self.path / "history.jsonl", self.path / "history.csv"
        history = table if table.is_file() and not jsonl.is_file() else jsonl
        return [history, *(self.path / name for name in ("layers.jsonl", "weights.jsonl", "samples.jsonl"))]

    def _checkpoints(self) -> list[Path]:
        return sorted((self.path / "checkpoints").glob("step-*.npz")) if self.path.is_dir() else []

    def poll(self) -> bool:
        """Read what is new; return whether there was anything."""
        paths = [path for path in self._paths() if path.is_file() and path not in self._closed]
        lines = [self._lines.setdefault(path, GrowingLines(path)) for path in paths]
        replaced = [one for one in lines if one.replaced()]
        if replaced:  # a resumed run: read everything anew
            self._lines = {path: GrowingLines(path) for path in paths}
            lines = list(self._lines.values())
            self._damaged.clear()
            self.record.restart_after(-1)
        news = bool(replaced)
        for one in lines:
            news |= self._read(one)
        self.record.end_layers()
        if self.record.decode is None and self.record.samples is not None:
            self.record.decode = _decoder(self.path / "model")
            self.record.pictures = None
        return self._read_checkpoint() or news

    def _read(self, lines: GrowingLines) -> bool:
        news = False
        parse = self._parse_csv if lines.path.suffix == ".csv" else _parse_json
        while True:
            try:
                if lines.offset >= MOST_BYTES:
                    raise ValueError(f"only its first {MOST_BYTES >> 20:,} MiB are shown")
                new = lines.read()
            except (OSError, ValueError) as error:
                text = error.strerror if isinstance(error, OSError) else str(error)
                self.record.notes[f"{lines.path.name}: {text}"] = None
                self._closed.add(lines.path)
                return news
            if not new:
                return news
            news = True
            for number, line in new:
                self._take(lines.path.name, number, line, parse)

    def _take(self, name: str, number: int, line: bytes, parse: Callable[[bytes], Mapping[str, Any] | None]) -> None:
        try:
            fields = parse(line)
            if fields is not None:
                self.record.add(fields)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, csv.Error):
            count, first = self._damaged.get(name, (0, number))
            self._damaged[name] = (count + 1, first)

    def _parse_csv(self, line: bytes) -> Mapping[str, Any] | None:
        cells = next(csv.reader([line.decode("utf-8")]), [])
        if cells[:1] == ["event"]:
            self._columns = cells
            return None
        if len(cells) != len(self._columns):
            raise ValueError("a row with other columns")
        fields: dict[str, Any] = {key: cell for key, cell in zip(self._columns, cells, strict=True) if cell}
        for key in ("losses", "validation_losses", "accuracies"):
            if key in fields:
                fields[key] = json.loads(fields[key])
        return fields

    def _read_checkpoint(self) -> bool:
        """Read settings from the newest checkpoint if they are not known, and epochs if no file has them."""
        newest = next(reversed(self._checkpoints()), None)
        if newest is None:
            return False
        seen = (newest.name, newest.stat().st_size if newest.exists() else 0)
        epochs_known = any(path.is_file() for path in self._paths()[:1])
        if seen == self._checkpoint or (self.record.settings and epochs_known):
            return False
        self._checkpoint = seen
        try:
            self.record.settings, history = checkpoint_facts(newest)
            if not epochs_known:
                self.record.restart_after(-1)
                for entry in history:
                    self.record.add({"event": "epoch", **entry})
                self.record.running = False
        except (VolumetricError, KeyError, TypeError, ValueError) as error:
            self.record.notes[str(error)] = None
        return True

    def damage(self) -> list[str]:
        """Return sentences about lines that cannot be read."""
        return [
            f"{name}: {count:,} {'line is' if count == 1 else 'lines are'} unreadable and left out, the first is line "
            f"{first:,}"
            for name, (count, first) in self._damaged.items()
        ]

    def goes_on(self) -> bool:
        """Whether a process holds the run's directory now."""
        return self.path.is_dir() and self.record.running and _is_held(self.path / ".lock")


def _is_held(path: Path) -> bool:
    """Whether the process that wrote its number into the lock file is alive."""
    if os.name != "posix":  # there, signal 0 would end the process
        return path.exists() and time.time() - path.stat().st_mtime < _LONG_AGO
    try:
        process = int(path.read_text(encoding="ascii")[:20])
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True


def _decoder(model: Path) -> Callable[[Sequence[int]], str] | None:
    """Return what makes texts of the token ids of a saved model, if it has a tokenizer."""
    if not (model / "tokenizer.json").is_file():
        return None
    from volumetric.loaders.tokenizer_files import read_tokenizer_files

    try:
        tokenizer, _ = read_tokenizer_files(model)
    except VolumetricError:
        return None
    if tokenizer is None:
        return None
    return lambda ids: tokenizer.decode([i for i in ids if 0 <= i < 1 << 31])  # masked targets are negative


def _parse_json(line: bytes) -> Mapping[str, Any]:
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise TypeError("not an event")
    return fields


def read_run(path: str | os.PathLike[str], name: str = "") -> TrainingRecord:
    """Return the record of a finished run, or of one so far.

    Raises
    ------
    SpecError : there is nothing of a training run
    CheckpointError : nothing of it can be read
    """
    where = Path(path)
    record = TrainingRecord(name or where.absolute().name)
    files = RunFiles(where, record)
    files.poll()
    check_run_files(files)
    if record.running and not files.goes_on():
        record.running, record.status = False, record.status or "no end recorded"
    return record


def check_run_files(files: RunFiles) -> None:
    """Raise `CheckpointError` if nothing of a run can be shown; else note what is damaged."""
    record = files.record
    shown = len(record.steps) or len(record.epochs) or record.layer_names or record.weights.entries
    if not shown and (files.damage() or record.notes):
        causes = "; ".join(dict.fromkeys([*files.damage(), *record.notes]))
        raise CheckpointError(
            f"{files.path}: nothing of the run can be read: {causes}",
            hint="pass the directory that volumetric train writes",
        )
    for sentence in files.damage():
        record.notes[sentence] = None
