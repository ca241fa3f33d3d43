"""Samples of a run from its settings: a problem, arrays, a table, or text."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from volumetric.analysis.standardise import Standardisation
from volumetric.base import config_tables
from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.base.hints import path_hint
from volumetric.network import INPUT, OUTPUT, Network
from volumetric.train import memory
from volumetric.train.arrays import by_input_name, map_arrays
from volumetric.train.csv_table import read_csv
from volumetric.train.data import ArrayData, load_npz
from volumetric.train.image_folders import read_image_folder
from volumetric.train.load_samples import read_npy
from volumetric.train.losses import MSE, CrossEntropy
from volumetric.train.modes import Backprop
from volumetric.train.output_losses import AnyLoss
from volumetric.train.port_rows import by_row
from volumetric.train.problems import PROBLEMS, Problem
from volumetric.train.sample_table import problem_of_table
from volumetric.train.settings import DataSettings, RunSettings
from volumetric.train.stream_windows import RESETS, StreamWindows
from volumetric.train.table_objects import read_parquet
from volumetric.train.token_windows import token_windows
from volumetric.train.wav_files import read_wav_folder

Tokenize = Callable[[str], Sequence[int]]

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSamples:
    """Samples of a run: the problem, training batches, held-out samples, and the standardisation of the inputs.

    With several inputs and outputs `problem` has the input ``"input"``, and the output ``"output"`` or the first.
    """

    problem: Problem
    data: ArrayData
    validation: ArrayData | None
    scaling: Standardisation | None = None

    @property
    def named(self) -> str:
        """Description of the names of inputs and outputs; empty if both have the default name."""
        inputs = self.data.inputs
        if isinstance(inputs, Mapping):
            inputs = {name: x for name, x in inputs.items() if name != RESETS or self.problem.resets is None}
            inputs = inputs[INPUT] if [*inputs] == [INPUT] and self.problem.resets is not None else inputs
        pairs = [(what, of) for what, of in (("inputs", inputs), ("targets", self.data.targets))]
        return " and ".join(f"{what} {', '.join(map(repr, of))}" for what, of in pairs if isinstance(of, Mapping))

    @property
    def loss(self) -> AnyLoss:
        """Losses that fit the targets."""
        targets = self.data.targets
        if isinstance(targets, Mapping):
            return {name: CrossEntropy() if _are_ids(target) else MSE() for name, target in targets.items()}
        return CrossEntropy() if self.problem.classes or self.problem.vocabulary else MSE()

    @property
    def classed(self) -> bool:
        """Whether the targets are classes."""
        targets = self.data.targets
        several = [*targets.values()] if isinstance(targets, Mapping) else []
        return bool(self.problem.classes) or any(map(_are_ids, several))


def open_samples(
    run: RunSettings,
    tokenize: Tokenize | None = None,
    scaling: Standardisation | None = None,
    classes: tuple[str, ...] = (),
    network: Network | None = None,
    features: tuple[str, ...] = (),
) -> RunSamples:
    """Read the samples of the settings.

    Parameters
    ----------
    tokenize : converts text to token ids (None: its UTF-8 bytes)
    scaling : standardisation of the model that continues training (None: from the settings)
    classes : class names of the model (empty: those of the samples)
    network : the network to train, if known: samples may be by its ports
    features : names of the input columns of a table (empty: all but the targets)

    Raises
    ------
    SpecError, CheckpointError, ShapeError
        Settings are invalid, a file cannot be read, or arrays do not match.
    UnsupportedError
        The problem needs a library that is not installed.
    """
    settings, mode = run.data, run.train.mode
    if settings.text and isinstance(mode, Backprop) and mode.carry:
        return _streams(run, tokenize)
    problem, arrays = _read(run, _source(settings), tokenize, classes, network, features)
    data = ArrayData(
        **arrays,
        batch_size=settings.batch_size,
        shuffle=settings.shuffle,
        seed=run.seed,
        drop_last=settings.drop_last,
    )
    split = settings.validation
    if isinstance(split, str):
        if settings.npy:
            raise SpecError("[data] validation: npy files are held out by a fraction", hint="set validation = 0.2")
        if settings.problem or not _source(settings):
            raise SpecError(
                f"[data] validation: a problem cannot use a validation file, got {split!r}",
                hint="set a fraction without quotes, as validation = 0.2",
            )
        _, others = _read(run, split, tokenize, problem.classes, network, problem.features)
        validation = ArrayData(**others, batch_size=settings.batch_size, shuffle=False)
    elif split and settings.problem not in PROBLEMS and settings.problem in _problems(settings):
        most = round(len(data) * split)
        if not most:
            raise SpecError(f"[data] validation: {split} of {len(data)} samples leaves no samples")
        others = _named_problem(settings, split="validation", samples=most)
        arrays = {"inputs": others.inputs, "targets": others.targets, "mask": others.mask}
        validation = ArrayData(**arrays, batch_size=settings.batch_size, shuffle=False)
    elif split:
        data, validation = data.split(split)
    else:
        validation = None
    if scaling is None and settings.standardise:
        x = data.features
        scaling = Standardisation.of(x.reshape(-1, x.shape[-1]) if run.ticking and x.ndim == 3 else x)
    if scaling is not None:
        data = data.with_features(scaling.apply)
        validation = validation and validation.with_features(scaling.apply)
    return RunSamples(problem=problem, data=data, validation=validation, scaling=scaling)


def _source(settings: DataSettings) -> str:
    return settings.npz or settings.csv or settings.parquet or settings.text or settings.images or settings.audio


def _read(
    run: RunSettings,
    file: str,
    tokenize: Tokenize | None,
    classes: tuple[str, ...],
    network: Network | None,
    features: tuple[str, ...],
) -> tuple[Problem, dict[str, Any]]:
    """Return the problem of a source, and its inputs, targets and mask."""
    settings = run.data
    if settings.npz:
        arrays = load_npz(run.path(file), inputs=settings.inputs, targets=settings.targets, mask=settings.mask)
        rows = arrays if network is None or run.ticking else by_row(network, arrays)
        return _of_arrays(rows, run)
    if settings.npy:
        read: dict[str, Any] = {name: read_npy(run.path(path)) for name, path in settings.npy.items()}
        return _of_arrays(ArrayData(**read), run)
    if settings.csv or settings.parquet:
        path = run.path(file)
        table = read_csv(path, settings.header) if settings.csv else read_parquet(path)
        problem = problem_of_table(
            table,
            settings.columns,
            classes=settings.classes or None if settings.parquet else settings.classes,
            features=features,
            known=classes,
        )
        if len(problem.classes) == 1:
            column = settings.columns[0] if settings.columns else table.columns[-1]
            raise SpecError(
                f"{table.name}: column {column!r} has one class only, {problem.classes[0]!r}: nothing can be learned",
                hint="add samples of another class, or set columns to the column with the classes",
            )
    elif settings.images:
        problem = read_image_folder(run.path(file), settings.size, settings.channels or 3, classes)
    elif settings.audio:
        shape = {"rate": settings.rate, "samples": settings.samples or _length_of(network)}
        problem = read_wav_folder(run.path(file), **shape, channels=settings.channels or 1, known=classes)
    elif settings.text:
        problem = _of_text(run.path(file), settings, tokenize)
    else:
        if not settings.problem:
            logger.warning("[data] names no samples, so the problem xor is learned: set csv, npz, images, … or problem")
        problem = _named_problem(settings)
    return problem, {"inputs": problem.inputs, "targets": problem.targets, "mask": problem.mask}


def _named_problem(settings: DataSettings, **changes: Any) -> Problem:
    """Create the problem of the settings, with its options."""
    return config_tables.build_from_registry(
        _problems(settings), {"kind": settings.problem or "xor", **settings.options, **changes}, "[data] problem"
    )


def _problems(settings: DataSettings) -> Mapping[str, Callable[..., Problem]]:
    """Return problems by name; a memory task has two names."""
    known = {name: task.make for name, task in memory.TASKS.own.items()}
    name = settings.problem.removeprefix("memory.")
    if name not in PROBLEMS and name not in known and name in memory.TASKS:  # of the user, or of a package
        known[name] = memory.TASKS[name].make
    return {**known, **PROBLEMS, **{f"memory.{name}": make for name, make in known.items()}}


def _of_arrays(arrays: ArrayData, run: RunSettings) -> tuple[Problem, dict[str, Any]]:
    """Return the problem of arrays; one number for each sample, or for each row of a sequence, gets a feature axis."""
    axes = 2 if run.ticking else 1  # of samples, and of their rows
    if INPUT not in by_input_name(arrays.inputs):
        raise SpecError(
            f"[data] inputs: no array is named {INPUT!r}",
            hint=f"the file has {', '.join(by_input_name(arrays.inputs))}",
        )
    if run.ticking and arrays.features.ndim < axes:
        raise ShapeError(
            f"[data] clocked networks need sequences [samples, T, …], but the inputs have shape {arrays.features.shape}"
        )
    targets = map_arrays(arrays.targets, lambda y: y if _are_ids(y) or y.ndim != axes else y[..., None])
    fields = {"inputs": arrays.inputs, "targets": targets, "mask": arrays.mask, "ports": arrays.ports}
    x, several = arrays.features, isinstance(targets, Mapping)
    y = targets.get(OUTPUT, next(iter(targets.values()))) if several else targets
    mask = arrays.mask.get(OUTPUT) if isinstance(arrays.mask, Mapping) else arrays.mask
    vocabulary = int(x.max()) + 1 if _are_ids(x) and x.size else 0
    if vocabulary and _are_ids(y) and y.shape == x.shape:
        problem = Problem(inputs=x, targets=y, mask=mask, vocabulary=max(vocabulary, int(y.max()) + 1))
        return problem, fields
    first = not several or OUTPUT in targets  # class names belong to the output "output"
    by_sample, by_row = y.ndim == axes, x.ndim == 3 and y.shape == x.shape[:2]
    classes = tuple(map(str, range(int(y.max()) + 1))) if _are_ids(y) and (by_sample or by_row) and first else ()
    shape = x.shape[1:] if x.ndim > 2 and not run.ticking else ()
    return Problem(inputs=x, targets=y, mask=mask, classes=classes, shape=shape), fields


def _are_ids(array: Array) -> bool:
    return bool(np.issubdtype(array.dtype, np.integer))


def _length_of(network: Network | None) -> int:
    """Return the samples of a sound that a network reads; 0 if it is not known yet."""
    return 0 if network is None or not network.input_shape else network.input_shape[-1]


def _of_text(path: Path, settings: DataSettings, tokenize: Tokenize | None) -> Problem:
    ids = _ids_of(path, tokenize)
    inputs, targets = token_windows(ids, settings.length, settings.stride or None)
    return Problem(inputs=inputs, targets=targets, vocabulary=256 if tokenize is None else int(ids.max()) + 1)


def _ids_of(path: Path, tokenize: Tokenize | None) -> Array:
    """Return the token ids of a text."""
    try:
        raw = path.read_bytes()
        if b"\0" in raw[:4096]:
            raise CheckpointError(f"{path} is not text: it has bytes of 0", hint="name a text file, as story.txt")
        return np.frombuffer(raw, np.uint8) if tokenize is None else np.asarray(tokenize(raw.decode("utf-8")))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}", hint=path_hint(path)) from None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 text: {error}", hint="convert it") from None


def _streams(run: RunSettings, tokenize: Tokenize | None) -> RunSamples:
    """Return a text as consecutive windows of streams; the end of the text is held out."""
    settings, split = run.data, run.data.validation
    ids = _ids_of(run.path(settings.text), tokenize)
    others = _ids_of(run.path(split), tokenize) if isinstance(split, str) else ids[:0]
    if isinstance(split, float) and split:
        cut = len(ids) - round(split * len(ids))
        ids, others = ids[:cut], ids[cut:]
    windows = [StreamWindows(of, settings.length, settings.batch_size).arrays() for of in (ids, others) if len(of)]
    data, validation = windows[0], windows[1] if len(windows) > 1 else None
    assert isinstance(data.inputs, Mapping)
    problem = Problem(
        inputs=data.features,
        targets=data.answers,
        vocabulary=256 if tokenize is None else int(max(of.max() for of in (ids, others) if len(of))) + 1,
        resets=data.inputs[RESETS],
    )
    return RunSamples(problem=problem, data=data, validation=validation)
