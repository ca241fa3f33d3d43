"""Learner: the seam between the training loop and a device. Weights, gradients and optimiser state stay behind it.

The loop knows batches and numbers; a learner owns the whole of an update, so that a device can keep everything resident
and hand back one number for each step. Weights leave it only when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.network import Network
from volumetric.network.weights import Params
from volumetric.observe import Observer
from volumetric.train.by_output import AnyLoss, Losses, Tally
from volumetric.train.data import Batch
from volumetric.train.lora import LowRank
from volumetric.train.losses import MSE
from volumetric.train.modes import Backprop, Mode
from volumetric.train.optim import AdamW, Optimiser
from volumetric.train.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerOptions:
    """What a learner computes.

    Attributes
    ----------
    loss, loss_weights : a loss of the output ``"output"``, or losses of outputs by name; the weight of each in their
        sum, 1 where none is given
    optimiser : its `lr` is the loop's business
    clip : bound on the norm of all gradients together, or None
    dtype : schemes of the weights; forward uses the weights that they can hold (see `volumetric.train.precision`)
    frozen : patterns of keys, as ``"0.*"``, of parameters that are not trained
    decay_vectors : whether weight decay also pulls on parameters of one axis: gains and biases
    overlay : low-rank overlays that are trained in place of the weights, or None
    seed : of what layers draw while training, as dropout does
    mode : how the network learns
    clocked : the network as a machine, for the mode that trains through ticks
    """

    loss: AnyLoss = field(default_factory=MSE)
    loss_weights: Mapping[str, float] = field(default_factory=dict)
    optimiser: Optimiser = field(default_factory=AdamW)
    clip: float | None = None
    dtype: Precision = None
    frozen: tuple[str, ...] = ()
    decay_vectors: bool = True
    overlay: LowRank | None = None
    seed: int = 0
    mode: Mode = field(default_factory=Backprop)
    clocked: Clocked | None = None

    def __post_init__(self) -> None:
        """Check losses and clip, and that the mode trains what is asked for."""
        Losses.made(self.loss, self.loss_weights)
        if self.overlay is not None and not isinstance(self.mode, Backprop):
            raise SpecError(f"low-rank overlays are trained by backprop, not by mode {self.mode.kind!r}")
        if self.clip is not None and not self.clip > 0:
            raise SpecError(f"clip must be above 0, got {self.clip}", hint="None does not clip")

    @property
    def losses(self) -> Losses:
        """The losses by output."""
        return Losses.made(self.loss, self.loss_weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTarget:
    """What a layer was told in an update by targets.

    Attributes
    ----------
    where, kind : which layer
    budget : ``(cos(h, ĥ) + 1) / 2`` of its output and its target
    gap : root mean square of their difference
    """

    where: str
    kind: str
    budget: float
    gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one update did.

    Attributes
    ----------
    tally : sums and numbers of the losses' terms before the update
    gradient_norm : norm of all gradients together, before clipping
    clipped : whether the gradients were scaled down
    fault : None, or what was not finite; then no weight has changed
    layers : what the layers were told, where they have targets
    """

    tally: Tally
    gradient_norm: float
    clipped: bool = False
    fault: str | None = None
    layers: tuple[LayerTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class LearnerState:
    """Everything that the next update depends on beside its batch, in host memory.

    Attributes
    ----------
    updates : how many were made
    masters : key → trained weight
    slots : slot of the optimiser → key → array
    buffers : key → array that a layer changes itself, such as a running mean
    carried : what streams keep between two windows of their sequences
    """

    updates: int
    masters: Mapping[str, Array]
    slots: Mapping[str, Mapping[str, Array]]
    buffers: Mapping[str, Array] = field(default_factory=dict)
    carried: Mapping[str, Array] = field(default_factory=dict)


class Learner(Protocol):
    """Trains the weights of one network on one device."""

    @property
    def state(self) -> LearnerState:
        """Copy of what the next update depends on."""
        ...

    def restore(self, state: LearnerState) -> None:
        """Continue from `state`, bit for bit. Raises `CheckpointError` if it does not fit."""
        ...

    def step(self, batches: Sequence[Batch], *, rate: float) -> StepReport:
        """Make one update from the gradients of all `batches` together; a fault leaves every weight as it was."""
        ...

    def evaluate(self, batch: Batch) -> Tally:
        """Return the loss of a batch under the weights as they will be stored, and learn nothing."""
        ...

    def measure(self, batch: Batch) -> tuple[Tally, Mapping[str, Array]]:
        """Return what `evaluate` does, and the outputs that the batch has targets of, samples first."""
        ...

    def params(self) -> Params:
        """Return the weights as they are now, in their schemes, with float32 masters where a scheme rounds."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """A learner that can tell observers what happens inside."""

    def watch(self, observers: Sequence[Observer]) -> None:
        """Tell `observers` about every layer, forward and backward, from the next update on."""
        ...


@runtime_checkable
class Windowed(Protocol):
    """A learner that makes several updates of a batch of sequences, one of each window."""

    def windows(self, batch: Batch) -> Iterator[Batch]:
        """Yield what `step` takes, in this order."""
        ...


class OpenLearner(Protocol):
    """Makes a learner: the class of one, or a function of a device."""

    def __call__(self, network: Network, params: Params, options: LearnerOptions) -> Learner:
        """Bind a network to a private copy of `params`."""
        ...
