"""Settings of a training run, and their plain form, by which a checkpoint identifies its run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volumetric.base import config_tables
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError
from volumetric.dtypes import DType, Scheme
from volumetric.network.grid import CoordLike
from volumetric.train.coercion import CONVERTERS
from volumetric.train.learner import Compute, LearnerOptions, check_compute
from volumetric.train.lora import LowRank
from volumetric.train.losses import MSE
from volumetric.train.modes import Backprop, Mode
from volumetric.train.optim import AdamW, Optimiser
from volumetric.train.output_losses import AnyLoss, Losses
from volumetric.train.precision import Precision
from volumetric.train.schedules import Constant, Schedule

MAY_CHANGE = (
    "epochs",
    "max_steps",
    "patience",
    "accuracy",
    "checkpoint_every",
    "keep_checkpoints",
    "steps_per_submission",
)
"""Settings that may change between start and resume: they control stopping, reports, stored checkpoints and speed."""


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Settings of a run.

    Loss, optimiser, schedule, mode, overlay and dtype may also have the form of a TOML file: a name, as ``"adam"``, or
    a table with the name, as ``{"kind": "adam", "lr": 0.01}``. A function is a loss, see `GraphLoss`.

    Attributes
    ----------
    loss, loss_weights, optimiser, clip, dtype, frozen, decay_vectors, overlay : see `LearnerOptions`
    seed, mode, compute : see `LearnerOptions`
    schedule : factor on the optimiser's learning rate
    accumulate : batches whose gradients are summed for one update; the last update of an epoch may have fewer
    epochs : passes through the data
    max_steps : updates at most, or None
    patience : stop after this many epochs without a better validation loss, or None
    min_delta : a validation loss is better only if it is lower by more than this
    accuracy : report after every epoch the fraction of validation samples that are classified correctly (without
        validation data: of training samples, which takes one more pass through them); None: the command line does if
        there are classes, `train` if there are validation data, too
    checkpoint_every : updates between checkpoints; None: only at the end of epochs
    keep_checkpoints : number of newest checkpoints to keep
    steps_per_submission : updates that are submitted to the device together, at most; never more than 64. Their losses
        are read, and reported in order, when all are done. The result has the same bits. None: as many as take about
        20 ms, for arrays in memory; one with `stop` or observers. Submissions end at a checkpoint, at `max_steps`, and
        with an epoch after which validation data, accuracy or `metric` need the weights. If the data raise an error,
        the updates of the whole batches before it are made and reported first. Some updates are always submitted alone:
        those of several batches, of clocked networks and of windows that continue each other
    """

    loss: AnyLoss = field(default_factory=MSE)
    loss_weights: Mapping[str, float] = field(default_factory=dict)
    optimiser: Optimiser = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=Constant)
    clip: float | None = None
    dtype: Precision = None
    frozen: tuple[str, ...] = ()
    decay_vectors: bool = True
    overlay: LowRank | None = None
    seed: int = 0
    mode: Mode = field(default_factory=Backprop)
    compute: Compute = "float32"
    accumulate: int = 1
    epochs: int = 1
    max_steps: int | None = None
    patience: int | None = None
    min_delta: float = 0.0
    accuracy: bool | None = None
    checkpoint_every: int | None = None
    keep_checkpoints: int = 2
    steps_per_submission: int | None = None

    if TYPE_CHECKING:  # names, tables and functions are accepted, too

        def __init__(
            self,
            *,
            loss: AnyLoss | str | Mapping[str, Any] | Callable[..., Any] = ...,
            loss_weights: Mapping[str, float] = ...,
            optimiser: Optimiser | str | Mapping[str, Any] = ...,
            schedule: Schedule | str | Mapping[str, Any] | Callable[[int], float] = ...,
            clip: float | None = ...,
            dtype: Precision = ...,
            frozen: str | CoordLike | Sequence[str | CoordLike] = ...,
            decay_vectors: bool = ...,
            overlay: LowRank | Mapping[str, Any] | None = ...,
            seed: int = ...,
            mode: Mode | str | Mapping[str, Any] = ...,
            compute: Compute = ...,
            accumulate: int = ...,
            epochs: int = ...,
            max_steps: int | None = ...,
            patience: int | None = ...,
            min_delta: float = ...,
            accuracy: bool | None = ...,
            checkpoint_every: int | None = ...,
            keep_checkpoints: int = ...,
            steps_per_submission: int | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Convert names, tables and functions to settings, and check losses and numbers."""
        for name, convert in CONVERTERS.items():
            object.__setattr__(self, name, convert(getattr(self, name), name))
        config_tables.check_fields(self, without=CONVERTERS)
        Losses.from_losses(self.loss, self.loss_weights)
        check_compute(self.compute)
        for name in ("accumulate", *(name for name in MAY_CHANGE if name != "accuracy")):
            value = getattr(self, name)
            if value is not None and value < 1:
                default = next(f.default for f in dataclasses.fields(self) if f.name == name)
                usual = (
                    ("as many as take 20 ms" if "submission" in name else "no limit")
                    if default is None
                    else str(default)
                )
                raise SpecError(
                    f"{name} must be at least 1, got {value}", hint=f"leave it out for the default, {usual}"
                )
        if self.seed < 0:
            raise SpecError(f"seed must be 0 or more, got {self.seed}", hint="use any integer of 0 or more")
        if self.accumulate > 1 and not isinstance(self.mode, Backprop):
            raise SpecError(f"mode {self.mode.kind!r} makes each update from one batch: accumulate must be 1")

    @property
    def losses(self) -> Losses:
        """The losses by output."""
        return Losses.from_losses(self.loss, self.loss_weights)

    @property
    def learner(self) -> LearnerOptions:
        """The options of the learner."""
        names = {f.name for f in dataclasses.fields(LearnerOptions)} & {f.name for f in dataclasses.fields(self)}
        return LearnerOptions(**{name: getattr(self, name) for name in names})

    def describe(self) -> dict[str, Any]:
        """Return the settings that identify the run, as JSON data."""
        settings = {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self) if f.name not in MAY_CHANGE}
        if self.mode == Backprop():
            del settings["mode"]  # checkpoints of earlier versions have only this loss, and no loss weights
        if not self.loss_weights:
            del settings["loss_weights"]
        if self.compute == "float32":
            del settings["compute"]
        return settings


def plain(value: Any) -> Any:
    """Return a setting as JSON data."""
    if isinstance(value, (Scheme, DType)):
        return str(Scheme.parse(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": getattr(value, "kind", type(value).__name__), **fields}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}:{value.__qualname__}"
    return value
