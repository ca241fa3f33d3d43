"""Sequences in a clocked network: when outputs are read, and which rows have reached them by then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.train.data import Batch
from volumetric.train.modes import Systolic, TargetPropagation
from volumetric.train.output_losses import Losses, OutputTargets


@dataclass(frozen=True, slots=True)
class OutputReading:
    """When an output with `count` targets for each sequence is read: target n after tick ``n · every + delay``.

    Attributes
    ----------
    every : ticks between targets: the ticks of a row, or 1 if each tick has a target
    """

    count: int
    every: int
    delay: int

    @property
    def stop(self) -> int:
        """Ticks until the last target is read."""
        return (self.count - 1) * self.every + self.delay + 1

    def between(self, start: int, stop: int) -> range:
        """Return the range of targets that are read after ticks from `start` to `stop`."""
        first, last = (max(0, min(self.count, -(-(at - self.delay) // self.every))) for at in (start, stop))
        return range(first, last)

    def ticks(self, start: int, stop: int) -> tuple[int, ...]:
        """Return the ticks of a window, counted from its start, after which the output is read."""
        ends = self.between(start, stop)
        first, last = (n * self.every + self.delay - start for n in (ends.start, ends.stop))
        return tuple(range(first, last, self.every))

    def reached(self, resets: Array, per_row: int) -> Array:
        """Return 1 for the targets that are read before their stream restarts, float32 ``[samples, count]``.

        Parameters
        ----------
        resets : ``[samples, rows]``, at the first of the `per_row` ticks of each row
        """
        begun = np.cumsum(resets != 0, 1)  # number of restarts of a stream, row by row
        now = np.arange(self.count) * self.every
        rows = [np.minimum(tick // per_row, resets.shape[1] - 1) for tick in (now, now + self.delay)]
        return (begun[:, rows[0]] == begun[:, rows[1]]).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SequenceWindow(Batch):
    """Ticks of the sequences of a batch.

    Attributes
    ----------
    since : tick of the stored states; 0: streams begin
    start, stop : ticks that are learned from; ticks from `since` to `start` are only run
    sequences : the checked batch
    """

    since: int
    start: int
    stop: int
    sequences: Sequences


@dataclass(frozen=True, slots=True)
class Sequences:
    """A checked batch.

    Attributes
    ----------
    inputs : rows by input, ``[T, samples, …]``
    marks : resets, float32 ``[T, samples]``, or None
    samples : how many sequences
    targets : targets and masks of outputs, ``[samples, targets, …]``; targets whose streams restart before the read
        have weight 0
    readings : output → ticks at which it is read
    """

    inputs: Mapping[str, Array]
    rows: int
    marks: Array | None
    samples: int
    targets: Mapping[str, OutputTargets]
    readings: Mapping[str, OutputReading]

    @property
    def ticks(self) -> int:
        """Ticks until all outputs with targets are read."""
        return max(reading.stop for reading in self.readings.values())


def window_of(batch: Batch, sequences: Sequences, since: int, start: int, stop: int) -> SequenceWindow:
    """Return ticks of a checked batch."""
    return SequenceWindow(
        batch.inputs, batch.targets, batch.mask, since=since, start=start, stop=stop, sequences=sequences
    )


def some_rows(batch: Batch, targets: Mapping[str, OutputTargets], rows: int, chosen: slice) -> Batch:
    """Return some of the `rows` of all sequences, with their targets."""

    def part(array: Array) -> Array:
        each = array.shape[1] // rows  # targets of a row
        return array[:, chosen.start * each : chosen.stop * each]

    inputs = {name: x[:, chosen] for name, x in batch.inputs_by_name.items()}
    masks = {
        name: of.mask if of.mask.ndim == 1 else part(of.mask) for name, of in targets.items() if of.mask is not None
    }
    return Batch(inputs, {name: part(of.target) for name, of in targets.items()}, masks)


def delays_of(clocked: Clocked, mode: Systolic | TargetPropagation, losses: Losses) -> dict[str, int]:
    """Return the delay in ticks of each output that has a loss.

    Raises
    ------
    SpecError : the mode names an output without a loss, no input reaches an output, or a window is too short
    """
    stated, delays = mode.delay, dict[str, int]()
    own = stated if isinstance(stated, Mapping) else {}
    unknown = [name for name in own if name not in losses.of]
    if unknown:
        known = ", ".join(map(repr, losses.of))
        raise SpecError(f"{mode.kind}: delay of output {unknown[0]!r}, which has no loss", hint=f"{known} have losses")
    losses.check(clocked.network)
    for name in losses.of:
        delay = stated if isinstance(stated, int) else own.get(name)
        if delay is None:
            ways = [clocked.latency(port, name) for port in clocked.network.ports]
            delay = max((ticks for ticks in ways if ticks is not None), default=None)
        if delay is None:
            raise SpecError(f"no input of the network reaches its output {name!r}", hint="add a link to it")
        delays[name] = delay
    latest = max(delays.values())
    if isinstance(mode, Systolic) and (mode.window <= latest or mode.window < mode.ticks_per_row):
        raise SpecError(
            f"systolic: a window of {mode.window} ticks is too short for a delay of {latest} and "
            f"{mode.ticks_per_row} ticks a row",
            hint=f"window={max(latest + 1, mode.ticks_per_row)} is the minimum",
        )
    return delays


def windows_of(clocked: Clocked, mode: Systolic | TargetPropagation, losses: Losses, rows: int) -> int:
    """Return the maximum number of windows for sequences of `rows` rows."""
    latest, per = max(delays_of(clocked, mode, losses).values()), mode.ticks_per_row
    if isinstance(mode, TargetPropagation) or mode.carry:
        return -(-(rows * per + latest) // mode.window)
    return -(-rows // max(1, (mode.window - latest) // per))
