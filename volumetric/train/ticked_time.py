"""Training of clocked networks: an update is one graph of a window of ticks."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.clocked import Clocked
from volumetric.clocked.buckets import buckets_of
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.clocked.states import out_key
from volumetric.clocked.target_schedule import TargetSchedule, last_arrival, schedule_targets
from volumetric.clocked.target_state import OnlineMachine
from volumetric.clocked.tick_learning import MachineStreams, TickPass, WindowTicks, learning_graph, ticks_graph
from volumetric.clocked.window import Machine
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.graph.parameter_stacks import ParameterStack, ParameterStacks
from volumetric.layers import LayerSpec
from volumetric.observe.layer_events import Observer
from volumetric.run.stream_buffers import StreamBuffers, StreamBufferSpec
from volumetric.run.streams.stream_io import check_marks, check_rows
from volumetric.train.clocked_sequences import OutputReading, Sequences, SequenceWindow, delays_of, some_rows, window_of
from volumetric.train.data import Batch
from volumetric.train.modes import Systolic, TargetPropagation
from volumetric.train.output_losses import OutputTargets, Tally
from volumetric.train.picked_batch import AnySamples
from volumetric.train.prepared_batch import (
    BatchObjective,
    PreparedBatch,
    naming_output,
    prepare_objective,
    share_losses,
)
from volumetric.train.strategies import TimeStrategy
from volumetric.train.stream_windows import RESETS
from volumetric.train.target_credit import course_of
from volumetric.train.tbptt import LEARNS, LOOKS, BatchStreams, Use
from volumetric.train.trained_arrays import TrainedArrays


def bucket_stacks(clocked: Clocked, arrays: TrainedArrays) -> ParameterStacks:
    """Return the stacked weights of grouped products that learn by the same rule and that no other layer shares."""
    network = clocked.network
    uses = Counter(network.resolve(f"{c}/{p.name}") for c, spec in network.layers.items() for p in spec.params())
    losses = {name: arrays.part([name]).params for name in arrays.losses.of}
    trained = frozenset(arrays.trained_keys)

    def alike(key: str) -> object:
        """Return the properties that all keys of a stack must share."""
        if uses[key] > 1:
            return key
        needed = frozenset(name for name, keys in losses.items() if key in keys)
        return key in trained, arrays.schemes[key], needed

    stacks: list[ParameterStack] = []
    for bucket in buckets_of(clocked):
        if bucket.way == "grouped":
            for p in bucket.spec.params():
                keys = [network.resolve(f"{coord}/{p.name}") for coord in bucket.coords]
                runs = (tuple(run) for _, run in groupby(keys, alike))
                stacks += [ParameterStack(run, p.shape) for run in runs if uses[run[0]] == 1]
    return ParameterStacks(tuple(stacks))


class TickedTime(TimeStrategy):
    """Each update covers a window of ticks of a clocked network.

    Batches are sequences, ``[samples, T, …]``. Targets have the same form or, with a target for each tick, the form
    ``[samples, T · ticks_per_row, …]``. In addition to the inputs a batch may have ``"resets"``, ``[samples, T]``: 1 if
    a stream restarts at a row. An update covers a window of ticks; in target mode it covers all ticks up to a row that
    counts. Values and targets in transit are lost when a stream restarts or a batch ends.

    Raises
    ------
    SpecError : the delay of an output exceeds the window, or no weights affect a loss
    UnsupportedError : a layer behaves differently in training, as dropout does, or a target cannot cross a layer
    """

    step_graph = staticmethod(learning_graph)

    def __init__(self, arrays: TrainedArrays, clocked: Clocked) -> None:
        mode = arrays.options.mode
        assert isinstance(mode, Systolic | TargetPropagation)
        self.arrays: TrainedArrays = arrays
        self.clocked: Clocked = clocked
        self._mode = mode
        for step in arrays.plan.steps:
            spec = step.attrs.get("spec")
            if isinstance(spec, LayerSpec) and (spec.draws or spec.batch_statistics != "never"):
                raise UnsupportedError(f"{step.op} at {step.where} cannot be trained tick by tick", hint="leave it out")
        targets = isinstance(mode, TargetPropagation)
        self.wave: TargetSchedule = (
            schedule_targets(clocked, course_of(arrays.options), arrays.losses.of) if targets else {}
        )
        """How targets propagate through the clocked network; empty without targets."""
        if targets and not self.wave:
            raise SpecError("no layer with weights reaches an output that has a loss", hint="add a link to it")
        self._after = last_arrival(self.wave) if targets else 0
        """Ticks after the last row until its targets have reached all layers."""
        self.delays: dict[str, int] = delays_of(clocked, mode, arrays.losses)
        self._kept = BatchStreams(arrays.store, self._buffers)
        self._streams: dict[tuple[Use, int], MachineStreams] = {}
        self._piece: SequenceWindow

    @property
    def carried_arrays(self) -> dict[str, Array]:
        return self._kept.values

    def restore(self, arrays: Mapping[str, Array]) -> None:
        self._kept.restore(arrays)

    def windows(self, batch: Batch) -> Iterator[SequenceWindow]:
        """Yield the windows of a batch, one for each update; ticks without counted outputs are only run.

        In target mode layers also learn from these ticks, and from those after the last row until its targets arrive.
        """
        mode, sequences = self._mode, self.check(batch)
        if isinstance(mode, Systolic) and not mode.carry:
            rows = self._rows_of_a_window(sequences)
            for first in range(0, sequences.rows, rows):
                part = some_rows(
                    batch, self.arrays.losses.targets_of(batch), sequences.rows, slice(first, first + rows)
                )
                checked = self.check(part)
                if self._counts_any(checked, 0, checked.ticks):
                    yield window_of(part, checked, 0, 0, checked.ticks)
            return
        counted = [cut for cut in self.cut(0, sequences.ticks) if self._counts_any(sequences, *cut)]
        since = 0
        for start, stop in counted:
            if self.wave:
                start, stop = since, stop if stop != counted[-1][1] else sequences.ticks + self._after
            yield window_of(batch, sequences, since, start, stop)
            since = stop

    def _rows_of_a_window(self, sequences: Sequences) -> int:
        """Return the number of leading rows whose targets are all read within one window."""
        per, window = self._mode.ticks_per_row, self._mode.window
        # the last tick of r rows is (r − 1) · per + delay, and per − 1 later if each tick has a target
        ends = (reading.delay + 1 + (per - reading.every) for reading in sequences.readings.values())
        room = window - max(ends)
        if room < 0:
            raise SpecError(
                f"systolic: a window of {window} ticks is too short for a row",
                hint=f"set window={window - room} or more",
            )
        return room // per + 1

    def _counts_any(self, sequences: Sequences, start: int, stop: int) -> bool:
        return any(count > 0 for count in self._pose(sequences, start, stop).counts.values())

    def prepare_update(self, batches: Sequence[Batch]) -> tuple[list[PreparedBatch[TickPass]], float]:
        """Return a window from `windows` as a backprop update takes it; earlier ticks are run."""
        piece = self.begin(batches)
        checkpoint = getattr(self._mode, "checkpoint", 0)
        for start, stop in self.cut(piece.since, piece.start):
            self._run(LEARNS, piece.sequences, start, stop, judged=False)
        ready = self._ready(LEARNS, piece.sequences, piece.start, piece.stop, checkpoint=checkpoint)
        return share_losses(self.arrays.losses, [ready])

    def begin(self, batches: Sequence[Batch]) -> SequenceWindow:
        """Return the window of an update."""
        if len(batches) != 1:
            raise SpecError("an update of a clocked network uses one window: accumulate must be 1")
        self._piece = self._single_window(batches[0])
        return self._piece

    def finish_update(self, batches: Sequence[AnySamples]) -> None:
        """Let the next update continue from this window, unless it is the last of its sequences."""
        piece, sequences = self._piece, self._piece.sequences
        over = piece.stop == sequences.ticks + self._after
        self._kept.carried = None if over else sequences.samples

    def judge(self, batch: Batch, *, outputs: bool) -> tuple[Tally, dict[str, Array]]:
        """Return the loss of a batch, and each output at the ticks of its targets, ``[samples, targets, …]``.

        Streams run through whole sequences, whether or not windows carry states in training.
        """
        sequences = self.check(batch)
        tally, read = Tally(), dict[str, list[Array]]()
        for start, stop in self.cut(0, sequences.ticks):
            window_tally, rows = self._run(LOOKS, sequences, start, stop, judged=True)
            tally += window_tally
            for name, y in rows.items():
                read.setdefault(name, []).append(y)
        if not np.isfinite(tally.total):
            named = self.first_not_finite(sequences, 0, sequences.ticks) or self.arrays.fault(tally)
            tally = dataclasses.replace(tally, fault=named)
        return tally, {name: np.concatenate(parts, 1) for name, parts in read.items()} if outputs else {}

    def watch(self, observers: Sequence[Observer]) -> None:
        """Raise for observers: statistics exist for whole passes, not for ticks."""
        if observers:
            raise UnsupportedError("observers are not supported for clocked networks", hint="remove the observers")

    def streams(self, use: Use, batch: int) -> MachineStreams:
        """Return streams for a size of batch."""
        if (use, batch) not in self._streams:
            self._streams[use, batch] = MachineStreams(self._machine(use, batch), use, self.arrays.stacks)
            self._kept.of(use, batch)
        return self._streams[use, batch]

    def buffers(self, batch: int) -> StreamBuffers:
        """Return the states of the streams in training."""
        return self._kept.of(LEARNS, batch)

    def _machine(self, use: Use, batch: int) -> Machine:
        online = self.wave and use == LEARNS
        return OnlineMachine(self.clocked, batch, self.wave) if online else Machine(self.clocked, batch)

    def _buffers(self, use: Use) -> Mapping[str, StreamBufferSpec]:
        known = (streams.machine for (of, _), streams in self._streams.items() if of == use)
        return (next(known, None) or self._machine(use, 1)).buffers

    def cut(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield windows, from tick to tick."""
        for at in range(start, stop, self._mode.window):
            yield at, min(at + self._mode.window, stop)

    def _single_window(self, batch: Batch) -> SequenceWindow:
        """Return the batch as a window; it must fit into one."""
        if isinstance(batch, SequenceWindow):
            return batch
        windows = list(self.windows(batch))
        if len(windows) > 1:
            raise SpecError(
                f"the sequences have {len(windows)} windows, expected 1",
                hint="call step() with each window of `windows(batch)`",
            )
        if not windows:
            sequences = self.check(batch)
            return window_of(batch, sequences, 0, 0, sequences.ticks)
        return windows[0]

    def check(self, batch: Batch) -> Sequences:
        """Check a batch."""
        network, samples = self.clocked.network, len(batch)
        inputs = dict(batch.inputs_by_name)
        resets = inputs.pop(RESETS, None) if RESETS not in network.ports else None
        missing = [name for name in network.ports if name not in inputs]
        if missing:
            raise ShapeError(f"the batch has no input {missing[0]!r}", hint=f"it has {', '.join(map(repr, inputs))}")
        checked_inputs, rows = check_rows(network, inputs, samples)
        if rows == 0:
            raise ShapeError("the sequences of the batch have no rows")
        targets, readings = self.arrays.losses.targets_of(batch), dict[str, OutputReading]()
        for name, of in targets.items():
            with naming_output(self.arrays.losses, name):
                readings[name] = self._reading(name, of, samples, rows)
                count = readings[name].count
                self.arrays.losses.of[name].checked((samples, count, *self.row_of(name)), of.target, of.mask)
                if of.mask is not None and of.mask.ndim == 1:
                    targets[name] = OutputTargets(of.target, np.broadcast_to(of.mask[:, None], (samples, count)))
        marks = None
        if resets is not None and (checked := check_marks(resets, samples, rows)).any():
            marks = np.ascontiguousarray(checked.T, np.float32)
            for name, (target, mask) in targets.items():
                reached = readings[name].reached(checked, self._mode.ticks_per_row)
                if mask is not None:
                    reached = mask * reached.reshape(*reached.shape, *(1,) * (mask.ndim - 2))
                targets[name] = OutputTargets(target, reached)
        rows_first = {name: np.ascontiguousarray(x.swapaxes(0, 1)) for name, x in checked_inputs.items()}
        return Sequences(rows_first, rows, marks, samples, targets, readings)

    def _reading(self, name: str, masked: OutputTargets, samples: int, rows: int) -> OutputReading:
        """Return the ticks at which an output is read, from the number of its targets."""
        per = self._mode.ticks_per_row
        shapes = [(samples, count) for count in dict.fromkeys((rows, rows * per))]
        if masked.target.shape[:2] not in shapes:
            also = f", or [{samples}, {rows * per}, …] with a target for each tick" if per > 1 else ""
            expected = f"[{samples}, {rows}, …]{also}"
            raise ShapeError(f"targets: expected {expected}, got {list(masked.target.shape)}")
        count = masked.target.shape[1]
        if masked.mask is not None and masked.mask.ndim > 1 and masked.mask.shape[:2] != (samples, count):
            raise ShapeError(f"mask: expected [{samples}, {count}, …], got {list(masked.mask.shape)}")
        return OutputReading(count, per if count == rows else 1, self.delays[name])

    def row_of(self, name: str) -> Shape:
        """Shape of an output after a tick."""
        network = self.clocked.network
        return network.shapes[network.taps[name]][1:]

    def _pose(self, sequences: Sequences, start: int, stop: int) -> BatchObjective:
        """Return the losses of the outputs that are read in a window."""
        targets: dict[str, OutputTargets] = {}
        shapes: dict[str, Shape] = {}
        for name, (target, mask) in sequences.targets.items():
            read = sequences.readings[name].between(start, stop)
            if read:
                part = slice(read.start, read.stop)
                targets[name] = OutputTargets(target[:, part], None if mask is None else mask[:, part])
                shapes[name] = (sequences.samples, len(read), *self.row_of(name))
        return prepare_objective(self.arrays.losses, targets, shapes)

    def window(self, sequences: Sequences, start: int, stop: int) -> tuple[WindowTicks, list[Array]]:
        """Return a window and its inputs."""
        per = self._mode.ticks_per_row
        first, last = (min(sequences.rows, -(-at // per)) for at in (start, stop))
        marks = None
        if sequences.marks is not None and sequences.marks[first:last].any():
            marks = np.zeros((stop - start, sequences.samples), np.float32)
            marks[first * per - start : stop - start : per][: last - first] = sequences.marks[first:last]
        ticks = WindowTicks(
            count=stop - start,
            fed_inputs=tuple(sequences.inputs) if last > first else (),
            rows=tuple(range(first * per - start, last * per - start, per)),
            read=tuple((name, at) for name, of in sequences.readings.items() if (at := of.ticks(start, stop))),
            fresh=start == 0,
            resets=marks is not None,
        )
        arrays = [x[first:last] for x in sequences.inputs.values()] if last > first else []
        return ticks, arrays if marks is None else [*arrays, marks]

    def _ready(
        self, use: Use, sequences: Sequences, start: int, stop: int, *, judged: bool = True, checkpoint: int = 0
    ) -> PreparedBatch[TickPass]:
        """Return a window with its losses, for evaluation."""
        ticks, arrays = self.window(sequences, start, stop)
        posed = self._pose(sequences, start, stop) if judged else BatchObjective((), [], {})
        streams = self.streams(use, sequences.samples)
        of = TickPass(streams=streams, ticks=ticks, objectives=posed.objectives, checkpoint=checkpoint)
        return PreparedBatch(of, [*arrays, *posed.arrays], posed)

    def _run(
        self, use: Use, sequences: Sequences, start: int, stop: int, *, judged: bool
    ) -> tuple[Tally, dict[str, Array]]:
        """Run ticks without learning; return the loss and the outputs, if requested."""
        ready = self._ready(use, sequences, start, stop, judged=judged)
        program = self.arrays.program("ticks", ready.of, lambda: ticks_graph(ready.of, self.arrays.weights))
        outputs = program.run(ready.arrays)
        if not ready.posed.counts:
            return Tally(), {}
        return ready.posed.tally(outputs[0].tolist()), dict(zip(ready.posed.counts, outputs[1:], strict=True))

    def fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str | None:
        return self.first_not_finite(self._piece.sequences, self._piece.start, self._piece.stop)

    def first_not_finite(self, sequences: Sequences, start: int, stop: int) -> str | None:
        """Run ticks again on the host, and name the layer and the tick of the first non-finite number."""
        batch, per = sequences.samples, self._mode.ticks_per_row
        stream = ClockedStream(ReferenceDevice(), self.clocked, self.arrays.params(), batch=batch)
        if start:
            buffers = self.buffers(batch)
            stream.fill(self.streams(LEARNS, batch).machine.gather(buffers.get), start)
        for t in range(start, stop):
            row, late = divmod(t, per)
            if late or row >= sequences.rows:
                stream.run(ticks=1)
            else:
                marks = None if sequences.marks is None else sequences.marks[row][:, None]
                stream.run({name: x[row][:, None] for name, x in sequences.inputs.items()}, resets=marks)
            for coord, spec in self.clocked.network.layers.items():
                if not np.isfinite(stream.read(out_key(coord, 1))).all():
                    return f"{spec.kind} at {coord}, tick {t} of the sequences"
        return None
