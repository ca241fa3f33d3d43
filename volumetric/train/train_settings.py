"""Keywords of `train`: the settings of a run, its optimiser and its batches, and keywords of other packages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict

from volumetric.base.errors import ArgumentError, SpecError
from volumetric.network.grid import CoordLike
from volumetric.train.coercion import as_optimiser
from volumetric.train.learner import Compute
from volumetric.train.lora import LowRank
from volumetric.train.losses import Loss
from volumetric.train.modes import Mode
from volumetric.train.optim import Optimiser
from volumetric.train.output_losses import AnyLoss
from volumetric.train.schedules import Schedule
from volumetric.train.training_config import TrainConfig

OF_OPTIMISER: Final = ("lr", "weight_decay")
OF_BATCHES: Final = ("batch_size", "shuffle", "drop_last")
_FILLED: Final = ("cosine", "linear")
"""Schedules that last for the whole run if their steps are not set."""


class TrainSettings(TypedDict, total=False):
    """Keywords of `train` that are settings: the fields of `TrainConfig`, and those of optimiser and batches.

    Attributes
    ----------
    lr, weight_decay : of the optimiser, in place of its own
    batch_size, shuffle, drop_last : see `ArrayData`
    """

    loss: AnyLoss | Loss | str | Mapping[str, Any] | Callable[..., Any]
    loss_weights: Mapping[str, float]
    optimiser: Optimiser | str | Mapping[str, Any]
    schedule: Schedule | str | Mapping[str, Any] | Callable[[int], float]
    clip: float | None
    frozen: str | CoordLike | Sequence[str | CoordLike]
    decay_vectors: bool
    overlay: LowRank | Mapping[str, Any] | None
    seed: int
    mode: Mode | str | Mapping[str, Any]
    compute: Compute
    accumulate: int
    epochs: int
    max_steps: int | None
    patience: int | None
    min_delta: float
    accuracy: bool | None
    checkpoint_every: int | None
    keep_checkpoints: int
    steps_per_submission: int | None
    lr: float
    weight_decay: float
    batch_size: int
    shuffle: bool
    drop_last: bool


ANSWERS: Final[Mapping[str, str]] = {
    "momentum": 'it is of an optimiser: optimiser={"kind": "momentum", "momentum": 0.9}',
    "nesterov": 'it is of an optimiser: optimiser={"kind": "momentum", "nesterov": True}',
    "betas": 'they are of an optimiser: optimiser={"kind": "adam", "beta1": 0.9, "beta2": 0.999}',
    "eps": 'it is of an optimiser: optimiser={"kind": "adam", "eps": 1e-8}',
    "metrics": "accuracy=True reports the fraction of samples classified correctly; metric=function(params) reports "
    "anything else",
    "callbacks": "reporters=[function] receive every event of the run, as reporters=[print]; "
    "stop=function ends the run when it returns true",
    "early_stopping": "patience=5 with validation=0.1 stops after 5 epochs without a better validation loss",
    "sample_weight": "pass the weights of samples as mask=…; the loss is then divided by their sum",
    "class_weight": "weigh samples by mask=weights[y]",
    "steps_per_epoch": "max_steps=… ends the run after so many updates; an epoch is one pass through the data",
    "precision": 'dtype="bf16", "int8" … trains with weights of that type',
    "initial_epoch": "checkpoints=directory with resume=True continues a run",
    "precision_plugin": 'dtype="bf16"',
    "train_dataloaders": "pass x and y, or a function from epoch to batches",
    "dataset": "pass x and y, or a function from epoch to batches",
    "dataloader": "pass a function from epoch to batches: train(network, lambda epoch: loader)",
    "hidden_layer_sizes": "the layers are of the network: volumetric.builders.sequential(2, 1, hidden=(8,))",
}
"""Keyword of another package that means something else here, or is not needed → what to write."""


def config_of(config: TrainConfig | None, settings: Mapping[str, Any], batches: int) -> TrainConfig:
    """Return `config`, or the defaults, with `settings` in place of its own.

    Parameters
    ----------
    settings : keywords by their names here; those of batches are left out
    batches : batches of an epoch, for schedules without steps; 0 if that is unknown

    Raises
    ------
    SpecError : a setting is invalid
    """
    own = {name: value for name, value in settings.items() if name not in (*OF_OPTIMISER, *OF_BATCHES)}
    base = config or TrainConfig()
    if "optimiser" in own or any(name in settings for name in OF_OPTIMISER):
        own["optimiser"] = _optimiser(own.get("optimiser", base.optimiser), settings)
    if "schedule" in own:
        rest = {name: value for name, value in own.items() if name != "schedule"}
        own["schedule"] = _schedule(own["schedule"], dataclasses.replace(base, **rest), batches)
    return dataclasses.replace(base, **own) if own else base


def _optimiser(of: Any, settings: Mapping[str, Any]) -> Optimiser:
    if isinstance(of, type) and issubclass(of, Optimiser):
        of = of()
    optimiser = as_optimiser(of)
    changes = {name: settings[name] for name in OF_OPTIMISER if name in settings}
    return dataclasses.replace(optimiser, **changes) if changes else optimiser


def _schedule(of: Any, config: TrainConfig, batches: int) -> Any:
    """Return the schedule with the updates of the run as its steps, if it is a name or a table that lacks them."""
    table = {"kind": of} if isinstance(of, str) else of
    if not isinstance(table, Mapping) or table.get("kind") not in _FILLED or "steps" in table:
        return of
    updates = config.epochs * -(-batches // config.accumulate)
    steps = min(updates or config.max_steps or 0, config.max_steps or updates)
    return {**table, "steps": steps} if steps else of


def refuse_batches(settings: Mapping[str, Any], source: str) -> None:
    """Raise `ArgumentError` if batches are set, but the data are batches already."""
    name = next((name for name in OF_BATCHES if name in settings), None)
    if name is not None:
        raise ArgumentError(
            f"train: {name} is of arrays, and {source} has its own batches", hint="pass x and y as arrays, or omit it"
        )


def check_seed(seed: object) -> int:
    """Return the seed of weights and batches; raise `SpecError` if it is none."""
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise SpecError(f"seed must be 0 or more, got {seed!r:.60}", hint="use any integer of 0 or more")
    return seed
