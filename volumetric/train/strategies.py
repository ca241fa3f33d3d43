"""What a learner is composed of: the credit that weights get for a loss, and the time through which it goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from volumetric.base._typing import Array
from volumetric.graph import Graph
from volumetric.observe import Observer
from volumetric.train.by_output import Tally
from volumetric.train.data import Batch
from volumetric.train.learner import LayerTarget
from volumetric.train.objective import Ready


class Time(ABC):
    """What of sequences is one update, and what of them stays until the next one.

    Attributes
    ----------
    step_graph : writes an update by backprop, of the pass that `learning` returns, with some weights and a rule. Its
        output: sums of the losses' terms, norm of the gradients, 1 if it was written
    """

    step_graph: ClassVar[Callable[..., Graph]]

    @property
    def kept(self) -> dict[str, Array]:
        """What the next update goes on from, copied from the device."""
        return {}

    def restore(self, arrays: Mapping[str, Array]) -> None:  # noqa: B027 - whole batches leave nothing
        """Go on from what `arrays` was. Raises `CheckpointError` where it does not fit."""

    def windows(self, batch: Batch) -> Iterator[Batch]:
        """Yield what updates are of, in this order."""
        yield batch

    @abstractmethod
    def learning(self, batches: Sequence[Batch]) -> tuple[list[Ready[Any]], float]:
        """Return the batches of an update by backprop, checked, and the factor on all gradients."""

    @abstractmethod
    def learned(self, batches: Sequence[Batch]) -> None:
        """Go on behind batches of which an update was written."""

    @abstractmethod
    def judge(self, batch: Batch, *, outputs: bool) -> tuple[Tally, dict[str, Array]]:
        """Return the loss of a batch and, if asked, the outputs that it has targets of."""

    @abstractmethod
    def watch(self, observers: Sequence[Observer]) -> None:
        """Tell `observers` about every layer from the next update on."""

    @abstractmethod
    def fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str | None:
        """Name what was not finite first in an update by backprop, where a layer made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What came of an update.

    Attributes
    ----------
    norm, steepest : norm of the gradients, and the largest, where there were several
    good : whether it was written
    layers : what layers with targets were told
    """

    tally: Tally
    norm: float
    good: bool
    steepest: float
    layers: tuple[LayerTarget, ...] = ()


class Credit(ABC):
    """How weights learn from a loss."""

    @property
    def buffers(self) -> dict[str, Array]:
        """What the next update depends on beside the arrays, copied from the device."""
        return {}

    def restore(self, buffers: Mapping[str, Array]) -> None:  # noqa: B027 - most is in the arrays
        """Go on from what `buffers` were."""

    @abstractmethod
    def update(self, batches: Sequence[Batch], rate: float) -> Update:
        """Make one update, unless a number would not be finite."""

    @abstractmethod
    def fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str:
        """Name what was not finite first in an update."""
