"""Training through the ticks of a clocked network, on any device: an update is one graph of a window of ticks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from volumetric._typing import Array
from volumetric.clocked import Clocked
from volumetric.errors import CheckpointError, ShapeError, SpecError, UnsupportedError
from volumetric.layers import LayerSpec
from volumetric.network import OUTPUT, Network
from volumetric.observe.events import Observer
from volumetric.runtime.clocked.learning import Streams, Ticks, learning_graph, ticks_graph
from volumetric.runtime.clocked.reference import ReferenceClocked
from volumetric.runtime.clocked.states import kept_states, out_key
from volumetric.runtime.clocked.window import Machine
from volumetric.runtime.graph import GraphDevice
from volumetric.runtime.streams.marks import check_marks, check_rows
from volumetric.train.data import Batch
from volumetric.train.device import DeviceLearner
from volumetric.train.learner import LearnerOptions, LearnerState, StepReport, Tally
from volumetric.train.modes import Systolic
from volumetric.train.objective import Posed, pose
from volumetric.weights import Params

RESETS = "resets"
"""Name by which a batch has resets, ``[samples, T]``, beside its inputs; unless that is the name of an input."""
LEARNS, LOOKS = "carried", "seen"
"""Names of what streams keep while they learn, and while they are judged."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece(Batch):
    """Ticks of the sequences of a batch.

    Attributes
    ----------
    since : the tick that what is kept belongs to; 0: streams begin
    start, stop : ticks that are learned from; those from `since` on are only run
    """

    since: int = 0
    start: int = 0
    stop: int = 0


@dataclass(frozen=True, slots=True)
class Sequences:
    """A batch, checked.

    Attributes
    ----------
    given : rows by input, ``[T, samples, …]``
    marks : resets, float32 ``[T, samples]``, or None
    batch : targets, and the mask, in which rows weigh nothing whose streams begin anew before their output is there
    """

    given: Mapping[str, Array]
    rows: int
    marks: Array | None
    batch: Batch


class ClockedLearner(DeviceLearner):
    """Trains a machine on a `GraphDevice`. Batches are sequences, ``[samples, T, …]``, and so are their targets.

    Beside the inputs a batch may have ``"resets"``, ``[samples, T]``: 1 where a stream begins anew with a row.

    Raises
    ------
    SpecError : the options have no machine, or its output is later than a window is long
    UnsupportedError : a layer behaves in another way while it is trained, as dropout does
    """

    def __init__(self, network: Network, params: Params, options: LearnerOptions, device: GraphDevice) -> None:
        assert isinstance(options.mode, Systolic)
        if options.clocked is None or options.clocked.network is not network:
            raise SpecError("mode 'systolic' trains clocked networks", hint="train(Clocked(network=network), …)")
        self._mode: Systolic = options.mode
        self._clocked: Clocked = options.clocked
        super().__init__(network, params, options, device)
        for step in self._plan.steps:
            spec = step.attrs.get("spec")
            if isinstance(spec, LayerSpec) and (spec.draws or spec.batch_statistics != "never"):
                raise UnsupportedError(f"{step.op} at {step.where} cannot be trained tick by tick", hint="leave it out")
        self.delay = self._find_delay()
        self._streams: dict[tuple[str, int], Streams] = {}
        self._carried: int | None = None

    def _find_delay(self) -> int:
        """Return the ticks from a row to its output."""
        mode, delay = self._mode, self._mode.delay
        if delay == "auto":
            found = [self._clocked.latency(name, OUTPUT) for name in self._clocked.network.ports]
            reached = [ticks for ticks in found if ticks is not None]
            if not reached:
                raise SpecError("no input of the network reaches its output", hint="a link must lead there")
            delay = max(reached)
        if mode.window <= delay or mode.window < mode.ticks_per_row:
            raise SpecError(
                f"systolic: a window of {mode.window} ticks has no output with a delay of {delay} and "
                f"{mode.ticks_per_row} ticks a row",
                hint=f"window={max(delay + 1, mode.ticks_per_row)} is the least",
            )
        return delay

    @property
    def state(self) -> LearnerState:
        """What the next update depends on, copied from the device."""
        if self._carried is None:
            return super().state
        streams = self._of(LEARNS, self._carried)
        carried = {key: self._store.get(streams.place(key)) for key in streams.machine.buffers}
        return dataclasses.replace(super().state, carried=carried)

    def restore(self, state: LearnerState) -> None:
        """Continue from `state`. Raises `CheckpointError` where its arrays are not those of this machine."""
        streams: Streams | None = None
        if state.carried:
            planes = state.carried.get("plane/0/1")
            batch = 0 if planes is None or planes.ndim < 2 else planes.shape[1]
            machine = Machine(self._clocked, batch)
            shapes = {key: buffer.shape(batch) for key, buffer in machine.buffers.items()}
            if not batch or shapes != {key: value.shape for key, value in state.carried.items()}:
                raise CheckpointError("the checkpoint's streams are not those of this machine")
            streams = self._of(LEARNS, batch)
        super().restore(state)
        self._carried = None if streams is None else streams.machine.batch
        if streams is not None:
            for key, value in state.carried.items():
                self._store.put(streams.place(key), value)

    def windows(self, batch: Batch) -> Iterator[Batch]:
        """Yield the windows of a batch, each of which is an update; ticks after which no output counts are only run."""
        mode, sequences = self._mode, self._check(batch)
        if not mode.carry:
            rows = (mode.window - self.delay - 1) // mode.ticks_per_row + 1
            for first in range(0, sequences.rows, rows):
                part = _rows(batch, first, first + rows)
                stop = self._ticks(min(rows, sequences.rows - first))
                if self._pose(self._check(part), 0, stop).count > 0:
                    yield _piece(part, 0, 0, stop)
            return
        since, total = 0, self._ticks(sequences.rows)
        for start in range(0, total, mode.window):
            stop = min(start + mode.window, total)
            if self._pose(sequences, start, stop).count > 0:
                yield _piece(batch, since, start, stop)
                since = stop

    def step(self, batches: Sequence[Batch], *, rate: float) -> StepReport:
        """Make one update of a window, as `windows` yields them; a fault leaves every weight as it was."""
        if len(batches) != 1:
            raise SpecError("an update is of one window: accumulate must be 1")
        piece = self._whole(batches[0])
        sequences = self._check(piece)
        streams = self._of(LEARNS, len(piece))
        for start, stop in self._cut(piece.since, piece.start):
            self._run(streams, sequences, start, stop, judged=False)
        ticks, arrays = self._arrays(sequences, piece.start, piece.stop)
        asked = self._pose(sequences, piece.start, piece.stop)
        knobs = self._knobs(rate, self._options.loss.scale(asked.count), self._updates + 1)
        program = self._program(
            ("learn", streams.machine.batch, ticks, asked.objective.key),
            lambda: learning_graph(streams, ticks, self._weights, asked.objective, self._rule),
        )
        total, norm, good = self._values(program, [*arrays, *asked.arrays, knobs])
        last = piece.stop == self._ticks(sequences.rows)
        report = self._conclude(batches, Tally(total, asked.count), norm, good=bool(good), rate=rate)
        if report.fault is None:
            self._carried = None if last else len(piece)
        return report

    def evaluate(self, batch: Batch) -> Tally:
        """Return the loss of a batch."""
        return self.measure(batch)[0]

    def measure(self, batch: Batch) -> tuple[Tally, Array]:
        """Return the loss of a batch, and the outputs that belong to its rows, ``[samples, T, …]``.

        Streams go through whole sequences, whether or not windows carry while learning.
        """
        sequences, streams = self._check(batch), self._of(LOOKS, len(batch))
        tally, outputs = Tally(), []
        for start, stop in self._cut(0, self._ticks(sequences.rows)):
            found = self._run(streams, sequences, start, stop, judged=True)
            if found is not None:
                tally += found[0]
                outputs.append(found[1])
        if not np.isfinite(tally.total):
            named = self._first_odd(sequences, 0, self._ticks(sequences.rows)) or self._loss_fault
            tally = dataclasses.replace(tally, fault=named)
        return tally, np.concatenate(outputs, 1)

    def watch(self, observers: Sequence[Observer]) -> None:
        """Refuse observers: there are statistics of passes, not of ticks."""
        if observers:
            raise UnsupportedError("observers cannot look into the ticks of a clocked network", hint="leave them out")

    def _of(self, name: str, batch: int) -> Streams:
        """Return streams for a size of batch; their buffers are made when they are first needed."""
        if (name, batch) not in self._streams:
            streams = Streams(Machine(self._clocked, batch), name)
            for key, buffer in streams.machine.buffers.items():
                kind = np.int32 if buffer.dtype == "int32" else np.float32
                self._store.put(streams.place(key), np.full(buffer.shape(batch), buffer.start, kind))
            self._streams[name, batch] = streams
        return self._streams[name, batch]

    def _ticks(self, rows: int) -> int:
        """Ticks until the output of the last row is there."""
        return (rows - 1) * self._mode.ticks_per_row + self.delay + 1

    def _cut(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        for at in range(start, stop, self._mode.window):
            yield at, min(at + self._mode.window, stop)

    def _whole(self, batch: Batch) -> Piece:
        """Return a window as it is; a batch must be one."""
        if isinstance(batch, Piece):
            return batch
        found = list(self.windows(batch))
        if len(found) > 1:
            raise SpecError(f"the sequences are {len(found)} windows", hint="update by each of `windows(batch)`")
        whole = found[0] if found else _piece(batch, 0, 0, self._ticks(self._check(batch).rows))
        assert isinstance(whole, Piece)
        return whole

    def _check(self, batch: Batch) -> Sequences:
        """Check a batch."""
        network, samples = self._clocked.network, len(batch)
        given = dict(batch.given)
        resets = given.pop(RESETS, None) if RESETS not in network.ports else None
        missing = [name for name in network.ports if name not in given]
        if missing:
            raise ShapeError(f"the batch has no input {missing[0]!r}", hint=f"it has {', '.join(map(repr, given))}")
        found, rows = check_rows(network, given, samples)
        if rows == 0:
            raise ShapeError("the sequences of the batch have no rows")
        output = (samples, rows, *network.shapes[network.taps[OUTPUT]][1:])
        for name, array in (("targets", batch.targets), ("mask", batch.mask)):
            if array is not None and array.shape[:2] != output[:2] and (name == "targets" or array.ndim > 1):
                raise ShapeError(f"{name}: expected [{samples}, {rows}, …], got {list(array.shape)}")
        self._options.loss.checked(output, batch.targets, batch.mask)
        mask = batch.mask
        if mask is not None and mask.ndim == 1:
            mask = np.broadcast_to(mask[:, None], (samples, rows))
        marks = None
        if resets is not None and (checked := check_marks(resets, samples, rows)).any():
            marks = np.ascontiguousarray(checked.T, np.float32)
            reached = self._reached(checked)
            mask = reached if mask is None else mask * reached.reshape(*reached.shape, *(1,) * (mask.ndim - 2))
        rows_first = {name: np.ascontiguousarray(x.swapaxes(0, 1)) for name, x in found.items()}
        return Sequences(rows_first, rows, marks, Batch(batch.inputs, batch.targets, mask))

    def _reached(self, resets: Array) -> Array:
        """Return 1 for the rows whose output is there before their stream begins anew, ``[samples, T]``."""
        reached = np.ones(resets.shape, np.float32)
        for later in range(1, min(self.delay // self._mode.ticks_per_row, resets.shape[1] - 1) + 1):
            reached[:, :-later] *= resets[:, later:] == 0
        return reached

    def _read(self, rows: int, start: int, stop: int) -> range:
        """Return the rows whose outputs are there after ticks from `start` to `stop`."""
        per = self._mode.ticks_per_row
        first, last = (max(0, min(rows, -(-(at - self.delay) // per))) for at in (start, stop))
        return range(first, last)

    def _pose(self, sequences: Sequences, start: int, stop: int) -> Posed:
        """Return the loss of what is read in a window."""
        batch, network = sequences.batch, self._clocked.network
        read = self._read(sequences.rows, start, stop)
        output = (len(batch), len(read), *network.shapes[network.taps[OUTPUT]][1:])
        mask = None if batch.mask is None else batch.mask[:, read.start : read.stop]
        return pose(self._options.loss, output, batch.targets[:, read.start : read.stop], mask)

    def _arrays(self, sequences: Sequences, start: int, stop: int) -> tuple[Ticks, list[Array]]:
        """Return a window, and what comes in with it."""
        per = self._mode.ticks_per_row
        first, last = (min(sequences.rows, -(-at // per)) for at in (start, stop))
        marks = None
        if sequences.marks is not None and sequences.marks[first:last].any():
            marks = np.zeros((stop - start, len(sequences.batch)), np.float32)
            marks[first * per - start : stop - start : per][: last - first] = sequences.marks[first:last]
        ticks = Ticks(
            count=stop - start,
            given=tuple(sequences.given) if last > first else (),
            rows=tuple(row * per - start for row in range(first, last)),
            read=tuple(row * per + self.delay - start for row in self._read(sequences.rows, start, stop)),
            fresh=start == 0,
            resets=marks is not None,
        )
        arrays = [x[first:last] for x in sequences.given.values()] if last > first else []
        return ticks, arrays if marks is None else [*arrays, marks]

    def _run(
        self, streams: Streams, sequences: Sequences, start: int, stop: int, *, judged: bool
    ) -> tuple[Tally, Array] | None:
        """Run ticks that teach nothing; return loss and outputs where they are asked for and there are any."""
        ticks, arrays = self._arrays(sequences, start, stop)
        asked = self._pose(sequences, start, stop) if judged and ticks.read else None
        program = self._program(
            (streams.name, streams.machine.batch, ticks, None if asked is None else asked.objective.key),
            lambda: ticks_graph(streams, ticks, self._weights, None if asked is None else asked.objective),
        )
        if asked is None:
            program.run(arrays)
            return None
        total, outputs = program.run([*arrays, *asked.arrays])
        return Tally(total.item(), asked.count), outputs

    def _fault(self, batches: Sequence[Batch], rate: float, total: float) -> str:
        """Name what was not finite first."""
        piece = self._whole(batches[0])
        named = self._first_odd(self._check(piece), piece.start, piece.stop)
        return named or (self._loss_fault if not np.isfinite(total) else "the norm of the gradients, or a new weight")

    def _first_odd(self, sequences: Sequences, start: int, stop: int) -> str | None:
        """Run ticks once more on the host, and name the layer and the tick with the first odd number."""
        batch, per = len(sequences.batch), self._mode.ticks_per_row
        oracle = ReferenceClocked(self._clocked, self.params(), batch)
        if start:
            machine, place = self._of(LEARNS, batch).machine, self._of(LEARNS, batch).place
            for key in kept_states(self._clocked):
                name, row = machine.locate(key)
                buffer = machine.buffers[name]
                oracle.state[key] = self._store.get(place(name)).reshape(buffer.count, batch, *buffer.row)[row or 0]
        with np.errstate(all="ignore"):
            for t in range(start, stop):
                row, late = divmod(t, per)
                comes = not late and row < sequences.rows
                marks = sequences.marks[row] if comes and sequences.marks is not None else None
                oracle.tick({name: x[row] for name, x in sequences.given.items()} if comes else {}, marks)
                for coord, spec in self._clocked.network.layers.items():
                    if not np.isfinite(oracle.state[out_key(coord, 1)]).all():
                        return f"{spec.kind} at {coord}, tick {t} of the sequences"
        return None


def _piece(batch: Batch, since: int, start: int, stop: int) -> Piece:
    return Piece(batch.inputs, batch.targets, batch.mask, since, start, stop)


def _rows(batch: Batch, first: int, last: int) -> Batch:
    """Return some of the rows of all sequences."""
    given = {name: x[:, first:last] for name, x in batch.given.items()}
    mask = batch.mask if batch.mask is None or batch.mask.ndim == 1 else batch.mask[:, first:last]
    return Batch(given, batch.targets[:, first:last], mask)
