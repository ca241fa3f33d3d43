"""Strategies of a learner: `CreditStrategy` (how weights learn) and `TimeStrategy` (which rows make an update)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from volumetric.base._typing import Array
from volumetric.graph import Graph
from volumetric.observe import Observer
from volumetric.train.data import Batch
from volumetric.train.learner import LayerTarget
from volumetric.train.output_losses import Tally
from volumetric.train.picked_batch import AnySamples, PickedBatch
from volumetric.train.prepared_batch import PreparedBatch


class TimeStrategy(ABC):
    """Which part of sequences makes an update, and which states carry over to the next.

    Attributes
    ----------
    step_graph : builds the graph of a backprop update, from the pass of `learning`, weights and a rule. Its outputs:
        sums of the losses' terms, norm of the gradients, 1 if the update was applied
    chained : whether the last input of `step_graph` is the output of the update before
    independent : whether batches can be prepared before the updates that precede theirs, which are then made together
    """

    step_graph: ClassVar[Callable[..., Graph]]
    chained: ClassVar[bool] = False
    independent: ClassVar[bool] = False

    @property
    def carried_arrays(self) -> dict[str, Array]:
        """Copies of the states that the next update continues from."""
        return {}

    def restore(self, arrays: Mapping[str, Array]) -> None:  # noqa: B027 - whole batches carry no state
        """Continue from the states in `arrays`. Raises `CheckpointError` if they do not fit."""

    def windows(self, batch: Batch) -> Iterator[Batch]:
        """Yield the inputs of updates, in order."""
        yield batch

    @abstractmethod
    def prepare_update(self, batches: Sequence[Batch]) -> tuple[list[PreparedBatch[Any]], float]:
        """Return the checked batches of a backprop update, and the factor on all gradients."""

    def prepare_picked(self, batch: PickedBatch) -> tuple[list[PreparedBatch[Any]], float]:
        """Do what `prepare_update` does, for an update that may pick its samples on the device."""
        return self.prepare_update([batch.batch()])

    @abstractmethod
    def finish_update(self, batches: Sequence[AnySamples]) -> None:
        """Advance past batches whose update was applied."""

    @abstractmethod
    def judge(self, batch: Batch, *, outputs: bool) -> tuple[Tally, dict[str, Array]]:
        """Return the loss of a batch and, if requested, the outputs that have targets."""

    @abstractmethod
    def watch(self, observers: Sequence[Observer]) -> None:
        """Report statistics of every layer to `observers` from the next update on."""

    def unobserved(self, most: int) -> int:
        """Return how many of the next `most` updates come before one whose statistics an observer wants."""
        return most

    @abstractmethod
    def fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str | None:
        """Name the first non-finite value in a backprop update, if a layer produced it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Result of an update.

    Attributes
    ----------
    norm, steepest : norm of the gradients, and the largest norm if there were several
    good : whether the update was applied
    layers : budgets and gaps of layers with targets
    """

    tally: Tally
    norm: float
    good: bool
    steepest: float
    layers: tuple[LayerTarget, ...] = ()


class CreditStrategy(ABC):
    """How weights learn from a loss."""

    @property
    def buffers(self) -> dict[str, Array]:
        """Copies of the buffers, besides the arrays, that the next update depends on."""
        return {}

    def restore(self, buffers: Mapping[str, Array]) -> None:  # noqa: B027 - most state is in the arrays
        """Continue from `buffers`."""

    @abstractmethod
    def update(self, batches: Sequence[Batch], rate: float) -> Update:
        """Make one update, unless it would produce a non-finite number."""

    def updates(self, batches: Sequence[AnySamples], rates: Sequence[float]) -> list[Update] | None:
        """Make an update from each batch, in as few submissions as possible; None if only `update` can make them.

        The last one returned is the first that was not applied, if there is one: those after it change nothing. If a
        batch is wrong, the updates before it are made; if that is the first one, its error is raised.
        """
        return None

    @abstractmethod
    def fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str:
        """Name the first non-finite value in an update."""
