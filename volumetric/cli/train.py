"""The command ``train``: a network from a configuration file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.options import OutputOptions, check_device, check_dtype


def train(
    config: Path,
    *,
    device: Annotated[str | None, Parameter(name=["--device", "-dev"])] = None,
    dtype: Annotated[str | None, Parameter(name="--dtype")] = None,
    compute: Literal["float32", "float16"] | None = None,
    out: Annotated[str | None, Parameter(name="--out")] = None,
    resume: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    change: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Train a network from a TOML file; every key has a default, and an empty file trains on XOR.

    Model, checkpoints and history are written to a directory in the working directory, named after the file. Ctrl-C
    stops training after the update and saves a checkpoint, from which --resume continues bit-exactly. docs/training.md
    lists all keys.

    Parameters
    ----------
    config : path
        The TOML file.
    device : str
        Device: auto, cpu, gpu, gpu:1, or reference; default: from the file, else auto, which is the device in
        VOLUMETRIC_DEVICE, else the best GPU, else the CPU.
    dtype : str
        Numeric type in which the weights are trained and saved, such as int8 or bf16; default: train.dtype of the file.
    compute : str
        Numeric type of products: float32, or float16 for the matrix units of a GPU; default: train.compute of the file.
    out : path
        Directory to write; default: named after the file.
    resume : bool
        Continue from the newest checkpoint in that directory.
    change : tuple of str
        KEY=VALUE overrides a key of the file, such as train.epochs=5; may be repeated.
    json : bool
        Print the result as one JSON object.
    """
    output.apply()
    changes = dict(map(change_of, change))
    check_dtype(dtype)
    if device is not None:
        check_device(device)
    flags = {"device": device, "train.dtype": dtype, "train.compute": compute, "resume": resume or None}
    changes |= {name: value for name, value in flags.items() if value is not None}
    if out is not None:
        changes["output"] = str(Path(out).absolute())
    from volumetric.train.settings import read_settings

    run = read_settings(config, changes)
    if not run.resume and any(run.checkpoints.glob("*.npz")):
        raise UsageError(
            f"{run.directory} already holds a run",
            hint=f"--resume continues it, --out {run.directory}-2 writes to another directory",
        )
    from volumetric.cli import training_run
    from volumetric.cli.run_lock import only_one
    from volumetric.cli.training_open import open_run
    from volumetric.cli.training_progress import TrainingProgress, updates_of

    with console.progress(f"reading the files of {config}…"):
        opened = open_run(run)
    progress = TrainingProgress(*updates_of(opened.samples.data, opened.config, opened.machine))
    with only_one(run.directory):
        result = training_run.train_opened(run, opened, [progress])
    summary = training_run.summary(run, opened, result, training_run.judge(run, opened, result))
    console.write_json(summary) if json else console.write(_text(summary))
    return exits.INTERRUPTED if result.reason == "interrupted" else exits.OK


def change_of(text: str) -> tuple[str, Any]:
    """Parse ``key=value``; the value is TOML, or else a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"--set must be KEY=VALUE, got {text!r}", hint=f"for example --set {text.strip('= ') or 'train.epochs'}=5"
        )
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


def _text(summary: dict[str, Any]) -> str:
    updates, epochs = console.plural(summary["updates"], "update"), console.plural(summary["epochs"], "epoch")
    parts = [f"{updates} in {epochs} ({summary['reason']})"]
    for name, label in (("loss", "loss"), ("validation_loss", "best validation loss")):
        if summary[name] is not None:
            each = summary.get("losses", {}) if name == "loss" else {}
            parts.append(f"{label} {summary[name]:.4g}{_each(each, '.4g')}")
    if summary["accuracy"] is not None:
        parts.append(
            f"accuracy {summary['accuracy']:.2%}{_each(summary.get('accuracies', {}), '.2%')}".replace("%", " %")
        )
    return ", ".join(parts) + f"\n{summary['model']}: {summary['parameters']:,} parameters\n"


def _each(of: Mapping[str, float], form: str) -> str:
    """Format numbers by output, in brackets."""
    return f" ({', '.join(f'{name} {value:{form}}' for name, value in of.items())})" if of else ""
