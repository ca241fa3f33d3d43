"""Learner: the interface between the training loop and a device, which holds weights, gradients and optimiser state.

The loop handles batches and numbers; a learner makes whole updates, so that a device keeps all arrays resident and
returns a few numbers for each step. Weights leave the device only on request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, get_args, runtime_checkable

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.dtypes.type_choice import check_type_choice
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.observe import Observer
from volumetric.train.data import Batch
from volumetric.train.lora import LowRank
from volumetric.train.losses import MSE
from volumetric.train.modes import Backprop, Mode
from volumetric.train.optim import AdamW, Optimiser
from volumetric.train.output_losses import AnyLoss, Losses, Tally
from volumetric.train.picked_batch import AnySamples
from volumetric.train.precision import Precision

Compute: TypeAlias = Literal["float32", "float16"]
"""What both sides of products in training are rounded to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerOptions:
    """Options of a learner.

    Attributes
    ----------
    loss, loss_weights : a loss of the output ``"output"``, or losses by output name; their weights in the sum, 1 by
        default
    optimiser : the loop sets its `lr`
    clip : bound on the norm of all gradients together, or None
    dtype : schemes of the weights; the forward pass uses the rounded weights (see `volumetric.train.precision`)
    frozen : parameters that are not trained: patterns of keys, as ``"0.*"``; in a `TrainConfig` also coordinates of
        layers
    decay_vectors : whether weight decay also applies to parameters of one axis: gains and biases
    overlay : low-rank overlays that are trained in place of the weights, or None
    seed : of random numbers of layers in training, as of dropout
    mode : training mode
    compute : ``"float16"``: products round both sides to float16, for matrix units of GPUs; weights, their gradients,
        sums and the optimiser stay float32, and a loss scale keeps small gradients in range
    clocked : the clocked network, for modes that train through ticks
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
    compute: Compute = "float32"
    clocked: Clocked | None = None

    def __post_init__(self) -> None:
        """Check losses and clip, and that the mode supports overlay and compute."""
        Losses.from_losses(self.loss, self.loss_weights)
        if self.overlay is not None and not isinstance(self.mode, Backprop):
            raise SpecError(f"low-rank overlays need mode 'backprop', got mode {self.mode.kind!r}")
        check_compute(self.compute)
        if self.scaled and not isinstance(self.mode, Backprop):
            raise SpecError(
                f"compute 'float16' needs mode 'backprop', got mode {self.mode.kind!r}", hint="use compute='float32'"
            )
        if self.clip is not None and not self.clip > 0:
            raise SpecError(
                f"clip must be above 0, got {self.clip}", hint="set a number, as clip = 1.0, or leave it out"
            )

    @property
    def scaled(self) -> bool:
        """Whether gradients are multiplied by a loss scale."""
        return self.compute == "float16"

    @property
    def losses(self) -> Losses:
        """The losses by output."""
        return Losses.from_losses(self.loss, self.loss_weights)


def check_compute(compute: str) -> None:
    """Raise `SpecError` unless products can be computed so."""
    check_type_choice("compute", compute, get_args(Compute))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTarget:
    """Budget and gap of a layer in an update by target propagation.

    Attributes
    ----------
    where, kind : position and kind of the layer
    budget : ``(cos(h, ĥ) + 1) / 2`` of its output and its target
    gap : root mean square of their difference
    """

    where: str
    kind: str
    budget: float
    gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """Report of one update.

    Attributes
    ----------
    tally : sums and numbers of the losses' terms before the update
    gradient_norm : norm of all gradients together, before clipping; infinite if the update was skipped because scaled
        gradients overflowed, with compute ``"float16"``
    clipped : whether the gradients were scaled down
    fault : None, or the non-finite value; then no weight has changed
    layers : budgets and gaps of layers that have targets
    """

    tally: Tally
    gradient_norm: float
    clipped: bool = False
    fault: str | None = None
    layers: tuple[LayerTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class LearnerState:
    """Everything except the batch that the next update depends on, in host memory.

    Attributes
    ----------
    updates : number of updates made
    masters : key → trained weight
    slots : slot of the optimiser → key → array
    buffers : key → array that a layer changes itself, such as a running mean
    carried : states of streams between two windows
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
        """A copy of the state that the next update depends on."""
        ...

    def restore(self, state: LearnerState) -> None:
        """Continue from `state`, bit for bit. Raises `CheckpointError` if it does not fit."""
        ...

    def step(self, batches: Sequence[Batch], *, rate: float) -> StepReport:
        """Make one update from the gradients of all `batches` together; a fault leaves every weight unchanged."""
        ...

    def evaluate(self, batch: Batch) -> Tally:
        """Return the loss of a batch with the weights as they will be stored, without an update."""
        ...

    def measure(self, batch: Batch) -> tuple[Tally, Mapping[str, Array]]:
        """Return the loss as `evaluate` does, and the outputs that have targets, samples first."""
        ...

    def params(self) -> Params:
        """Return the current weights in their schemes, with float32 masters if a scheme rounds."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """A learner that supports observers."""

    def watch(self, observers: Sequence[Observer]) -> None:
        """Report statistics of every layer, forward and backward, to `observers` from the next update on."""
        ...


@runtime_checkable
class WindowedLearner(Protocol):
    """A learner that makes several updates from a batch of sequences, one for each window."""

    def windows(self, batch: Batch) -> Iterator[Batch]:
        """Yield the arguments of `step`, in order."""
        ...


@runtime_checkable
class SeriesLearner(Protocol):
    """A learner that makes several updates in one submission to its device."""

    def steps(self, batches: Sequence[AnySamples], *, rates: Sequence[float]) -> list[StepReport]:
        """Make one update from each batch, in order, with the bits of single updates.

        Returns
        -------
        At least one report. There are fewer than batches after a fault, which the last one then has, before an update
        whose statistics an observer wants, and before a batch that is wrong: the call that begins with it raises its
        error.
        """
        ...


class OpenLearner(Protocol):
    """A learner factory: a learner class, or a function bound to a device."""

    def __call__(self, network: Network, params: Params, options: LearnerOptions) -> Learner:
        """Bind a network to a private copy of `params`."""
        ...
