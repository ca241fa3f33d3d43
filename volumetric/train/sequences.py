"""Sequences through a clocked network: when its outputs are read, and which rows have reached them by then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.train.by_output import Asked, Losses
from volumetric.train.data import Batch
from volumetric.train.modes import Systolic, TargetPropagation


@dataclass(frozen=True, slots=True)
class Reading:
    """An output that has `count` targets a sequence: number n is what is read after tick ``n · every + delay``.

    Attributes
    ----------
    every : ticks from one target to the next: those of a row, or 1 where each tick has a target
    """

    count: int
    every: int
    delay: int

    @property
    def stop(self) -> int:
        """Ticks until the last one is there."""
        return (self.count - 1) * self.every + self.delay + 1

    def between(self, start: int, stop: int) -> range:
        """Return the targets that are read after ticks from `start` to `stop`."""
        first, last = (max(0, min(self.count, -(-(at - self.delay) // self.every))) for at in (start, stop))
        return range(first, last)

    def ticks(self, start: int, stop: int) -> tuple[int, ...]:
        """Return after which ticks of a window, counted from its start, it is read."""
        ends = self.between(start, stop)
        first, last = (n * self.every + self.delay - start for n in (ends.start, ends.stop))
        return tuple(range(first, last, self.every))

    def reached(self, resets: Array, per_row: int) -> Array:
        """Return 1 for the targets that are read before their stream begins anew, float32 ``[samples, count]``.

        Parameters
        ----------
        resets : ``[samples, rows]``, at the first of the `per_row` ticks of each row
        """
        begun = np.cumsum(resets != 0, 1)  # how often a stream has begun anew, row by row
        now = np.arange(self.count) * self.every
        rows = [np.minimum(tick // per_row, resets.shape[1] - 1) for tick in (now, now + self.delay)]
        return (begun[:, rows[0]] == begun[:, rows[1]]).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Piece(Batch):
    """Ticks of the sequences of a batch.

    Attributes
    ----------
    since : the tick that what is kept belongs to; 0: streams begin
    start, stop : ticks that are learned from; those from `since` on are only run
    sequences : the batch, checked
    """

    since: int
    start: int
    stop: int
    sequences: Sequences


@dataclass(frozen=True, slots=True)
class Sequences:
    """A batch, checked.

    Attributes
    ----------
    inputs : rows by input, ``[T, samples, …]``
    marks : resets, float32 ``[T, samples]``, or None
    samples : how many sequences
    targets : targets and masks of outputs, ``[samples, targets, …]``; targets whose streams begin anew before they are
        read weigh nothing
    readings : output → when it is read
    """

    inputs: Mapping[str, Array]
    rows: int
    marks: Array | None
    samples: int
    targets: Mapping[str, Asked]
    readings: Mapping[str, Reading]

    @property
    def ticks(self) -> int:
        """Ticks until all that has targets is read."""
        return max(reading.stop for reading in self.readings.values())


def piece_of(batch: Batch, sequences: Sequences, since: int, start: int, stop: int) -> Piece:
    """Return ticks of a batch, which was checked."""
    return Piece(batch.inputs, batch.targets, batch.mask, since=since, start=start, stop=stop, sequences=sequences)


def some_rows(batch: Batch, targets: Mapping[str, Asked], rows: int, chosen: slice) -> Batch:
    """Return some of the `rows` of all sequences, with what is asked of the outputs for them."""

    def part(array: Array) -> Array:
        each = array.shape[1] // rows  # targets of a row
        return array[:, chosen.start * each : chosen.stop * each]

    inputs = {name: x[:, chosen] for name, x in batch.given.items()}
    masks = {
        name: of.mask if of.mask.ndim == 1 else part(of.mask) for name, of in targets.items() if of.mask is not None
    }
    return Batch(inputs, {name: part(of.target) for name, of in targets.items()}, masks)


def delays_of(clocked: Clocked, mode: Systolic | TargetPropagation, losses: Losses) -> dict[str, int]:
    """Return the ticks from a row to each output that has a loss.

    Raises
    ------
    SpecError : the mode names an output without a loss, none of the inputs reaches one, or no window holds the latest
    """
    stated, delays = mode.delay, dict[str, int]()
    own = stated if isinstance(stated, Mapping) else {}
    unknown = [name for name in own if name not in losses.of]
    if unknown:
        known = ", ".join(map(repr, losses.of))
        raise SpecError(f"{mode.kind}: delay of output {unknown[0]!r}, which has no loss", hint=f"{known} have")
    losses.check(clocked.network)
    for name in losses.of:
        delay = stated if isinstance(stated, int) else own.get(name)
        if delay is None:
            ways = [clocked.latency(port, name) for port in clocked.network.ports]
            delay = max((ticks for ticks in ways if ticks is not None), default=None)
        if delay is None:
            raise SpecError(f"no input of the network reaches its output {name!r}", hint="a link must lead there")
        delays[name] = delay
    latest = max(delays.values())
    if isinstance(mode, Systolic) and (mode.window <= latest or mode.window < mode.ticks_per_row):
        raise SpecError(
            f"systolic: a window of {mode.window} ticks has no output with a delay of {latest} and "
            f"{mode.ticks_per_row} ticks a row",
            hint=f"window={max(latest + 1, mode.ticks_per_row)} is the least",
        )
    return delays


def windows_of(clocked: Clocked, mode: Systolic | TargetPropagation, losses: Losses, rows: int) -> int:
    """Return how many windows sequences of so many rows are at most."""
    latest, per = max(delays_of(clocked, mode, losses).values()), mode.ticks_per_row
    if isinstance(mode, TargetPropagation) or mode.carry:
        return -(-(rows * per + latest) // mode.window)
    return -(-rows // max(1, (mode.window - latest) // per))
