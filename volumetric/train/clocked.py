"""Training through the ticks of a clocked network, on any device: an update is one graph of a window of ticks."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.clocked import Clocked
from volumetric.errors import CheckpointError, ShapeError, SpecError, UnsupportedError
from volumetric.graph import GraphDevice
from volumetric.graph.stacks import Stack, Stacks
from volumetric.layers import LayerSpec
from volumetric.network import Network
from volumetric.observe.events import Observer
from volumetric.runtime.clocked.buckets import buckets_of
from volumetric.runtime.clocked.learning import Streams, Ticks, learning_graph, ticks_graph
from volumetric.runtime.clocked.states import kept_states, out_key
from volumetric.runtime.clocked.window import Machine
from volumetric.runtime.lower import lower
from volumetric.runtime.plan import Plan
from volumetric.runtime.reference import ReferenceDevice
from volumetric.runtime.streams.clocked import ClockedStream
from volumetric.runtime.streams.marks import check_marks, check_rows
from volumetric.train.by_output import Asked, Tally
from volumetric.train.data import Batch
from volumetric.train.device import DeviceLearner
from volumetric.train.learner import LearnerOptions, LearnerState, StepReport
from volumetric.train.modes import Systolic, TargetPropagation
from volumetric.train.objective import Posed, naming, pose
from volumetric.train.sequences import Piece, Reading, Sequences, delays_of, piece_of, some_rows
from volumetric.train.subject import OTHER_RUN
from volumetric.train.windows import RESETS
from volumetric.weights import Params

LEARNS, LOOKS = "carried", "seen"
"""Names of what streams keep while they learn, and while they are judged."""


class ClockedLearner(DeviceLearner):
    """Trains a machine on a `GraphDevice`.

    Batches are sequences, ``[samples, T, …]``, and so are their targets, or with one a tick
    ``[samples, T · ticks_per_row, …]``. Beside the inputs a batch may have ``"resets"``, ``[samples, T]``: 1 where a
    stream begins anew with a row.

    Raises
    ------
    SpecError : the options have no machine, or its output is later than a window is long
    UnsupportedError : a layer behaves in another way while it is trained, as dropout does
    """

    def __init__(self, network: Network, params: Params, options: LearnerOptions, device: GraphDevice) -> None:
        assert isinstance(options.mode, Systolic | TargetPropagation)
        if options.clocked is None or options.clocked.network is not network:
            kind = options.mode.kind
            raise SpecError(f"mode {kind!r} trains clocked networks here", hint="train(Clocked(network=network), …)")
        self._mode = options.mode
        self._clocked: Clocked = options.clocked
        super().__init__(network, params, options, device)
        for step in self._plan.steps:
            spec = step.attrs.get("spec")
            if isinstance(spec, LayerSpec) and (spec.draws or spec.batch_statistics != "never"):
                raise UnsupportedError(f"{step.op} at {step.where} cannot be trained tick by tick", hint="leave it out")
        self.delays = delays_of(self._clocked, self._mode, self._losses)
        self._streams: dict[tuple[str, int], Streams] = {}
        self._carried: int | None = None

    def _lowered(self, network: Network) -> Plan:
        """Return the network: at a tick all of it is computed, whatever a link back has as delay."""
        return lower(self._clocked.delayed)

    def _stacked(self) -> Stacks:
        """Return the weights that products of groups read, as far as they learn alike and no other layer has them."""
        network = self._clocked.network
        uses = Counter(network.resolve(f"{c}/{p.name}") for c, spec in network.layers.items() for p in spec.params())
        losses = {name: self._part([name]).params for name in self._losses.of}
        trained = frozenset(self._wanted)

        def alike(key: str) -> object:
            """Return what keys of one stack have in common."""
            if uses[key] > 1:
                return key
            needed = frozenset(name for name, keys in losses.items() if key in keys)
            return key in trained, self._schemes[key], needed

        found: list[Stack] = []
        for bucket in buckets_of(self._clocked):
            if bucket.way == "grouped":
                for p in bucket.spec.params():
                    keys = [network.resolve(f"{coord}/{p.name}") for coord in bucket.coords]
                    runs = (tuple(run) for _, run in groupby(keys, alike))
                    found += [Stack(run, p.shape) for run in runs if uses[run[0]] == 1]
        return Stacks(tuple(found))

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
            machine = self._machine(LEARNS, batch)
            shapes = {key: buffer.shape(batch) for key, buffer in machine.buffers.items()}
            if not batch or shapes != {key: value.shape for key, value in state.carried.items()}:
                raise CheckpointError(
                    "the checkpoint's streams are not those of this machine",
                    hint=OTHER_RUN,
                )
            streams = self._of(LEARNS, batch)
        super().restore(state)
        self._carried = None if streams is None else streams.machine.batch
        if streams is not None:
            for key, value in state.carried.items():
                self._store.put(streams.place(key), value)

    def windows(self, batch: Batch) -> Iterator[Batch]:
        """Yield the windows of a batch, each of which is an update; ticks after which no output counts are only run."""
        mode, sequences = self._mode, self._check(batch)
        if isinstance(mode, Systolic) and not mode.carry:
            rows = self._rows_of_a_window(sequences)
            for first in range(0, sequences.rows, rows):
                part = some_rows(batch, self._losses.asked(batch), sequences.rows, slice(first, first + rows))
                checked = self._check(part)
                if self._counts_any(checked, 0, checked.ticks):
                    yield piece_of(part, 0, 0, checked.ticks)
            return
        since, total = 0, sequences.ticks
        for start in range(0, total, mode.window):
            stop = min(start + mode.window, total)
            if self._counts_any(sequences, start, stop):
                yield piece_of(batch, since, start, stop)
                since = stop

    def _rows_of_a_window(self, sequences: Sequences) -> int:
        """Return how many rows have all that is asked of them within a window that begins with the first."""
        per, window = self._mode.ticks_per_row, self._mode.window
        # of r rows the last tick is (r − 1) · per + delay, and per − 1 later where each tick has a target
        ends = (reading.delay + 1 + (per - reading.every) for reading in sequences.readings.values())
        room = window - max(ends)
        if room < 0:
            raise SpecError(f"systolic: a window of {window} ticks is too short for a row", hint=f"{window - room} do")
        return room // per + 1

    def _counts_any(self, sequences: Sequences, start: int, stop: int) -> bool:
        return any(count > 0 for count in self._pose(sequences, start, stop).counts.values())

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
        scale, shares = self._losses.shares(asked.counts)
        own = [np.array([*shares.values()], np.float32)] if len(shares) > 1 else []
        rule = self._rule(asked.counts)
        apart = self._mode.checkpoint if isinstance(self._mode, Systolic) else 0
        program = self._program(
            ("learn", streams.machine.batch, ticks, asked.key),
            lambda: learning_graph(streams, ticks, self._weights, asked.objectives, rule, checkpoint=apart),
        )
        knobs = self._knobs(rate, scale, self._updates + 1)
        *totals, norm, good = self._values(program, [*arrays, *asked.arrays, *own, knobs])
        report = self._conclude(batches, asked.tally(totals), norm, good=bool(good), rate=rate)
        if report.fault is None:
            self._carried = None if piece.stop == sequences.ticks else len(piece)
        return report

    def evaluate(self, batch: Batch) -> Tally:
        """Return the loss of a batch."""
        return self.measure(batch)[0]

    def measure(self, batch: Batch) -> tuple[Tally, dict[str, Array]]:
        """Return the loss of a batch, and of each output what belongs to its targets, ``[samples, targets, …]``.

        Streams go through whole sequences, whether or not windows carry while learning.
        """
        sequences, streams = self._check(batch), self._of(LOOKS, len(batch))
        tally, read = Tally(), dict[str, list[Array]]()
        for start, stop in self._cut(0, sequences.ticks):
            found, outputs = self._run(streams, sequences, start, stop, judged=True)
            tally += found
            for name, y in outputs.items():
                read.setdefault(name, []).append(y)
        if not np.isfinite(tally.total):
            named = self._first_odd(sequences, 0, sequences.ticks) or self._loss_fault(tally)
            tally = dataclasses.replace(tally, fault=named)
        return tally, {name: np.concatenate(parts, 1) for name, parts in read.items()}

    def watch(self, observers: Sequence[Observer]) -> None:
        """Refuse observers: there are statistics of passes, not of ticks."""
        if observers:
            raise UnsupportedError("observers cannot look into the ticks of a clocked network", hint="leave them out")

    def _of(self, name: str, batch: int) -> Streams:
        """Return streams for a size of batch; their buffers are made when they are first needed."""
        if (name, batch) not in self._streams:
            streams = Streams(self._machine(name, batch), name, self._stacks)
            for key, buffer in streams.machine.buffers.items():
                kind = np.int32 if buffer.dtype == "int32" else np.float32
                self._store.put(streams.place(key), np.full(buffer.shape(batch), buffer.start, kind))
            self._streams[name, batch] = streams
        return self._streams[name, batch]

    def _machine(self, name: str, batch: int) -> Machine:
        """Return what keeps streams of a name."""
        return Machine(self._clocked, batch)

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
        whole = found[0] if found else piece_of(batch, 0, 0, self._check(batch).ticks)
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
        asked, readings = self._losses.asked(batch), dict[str, Reading]()
        for name, of in asked.items():
            with naming(self._losses, name):
                readings[name] = self._reading(name, of, samples, rows)
                count = readings[name].count
                self._losses.of[name].checked((samples, count, *self._row_of(name)), of.target, of.mask)
                if of.mask is not None and of.mask.ndim == 1:
                    asked[name] = Asked(of.target, np.broadcast_to(of.mask[:, None], (samples, count)))
        marks = None
        if resets is not None and (checked := check_marks(resets, samples, rows)).any():
            marks = np.ascontiguousarray(checked.T, np.float32)
            for name, (target, mask) in asked.items():
                reached = readings[name].reached(checked, self._mode.ticks_per_row)
                if mask is not None:
                    reached = mask * reached.reshape(*reached.shape, *(1,) * (mask.ndim - 2))
                asked[name] = Asked(target, reached)
        rows_first = {name: np.ascontiguousarray(x.swapaxes(0, 1)) for name, x in found.items()}
        return Sequences(rows_first, rows, marks, samples, asked, readings)

    def _reading(self, name: str, asked: Asked, samples: int, rows: int) -> Reading:
        """Return when an output is read, by how many targets it has."""
        per = self._mode.ticks_per_row
        shapes = [(samples, count) for count in dict.fromkeys((rows, rows * per))]
        if asked.target.shape[:2] not in shapes:
            also = f", or [{samples}, {rows * per}, …] with a target for each tick" if per > 1 else ""
            expected = f"[{samples}, {rows}, …]{also}"
            raise ShapeError(f"targets: expected {expected}, got {list(asked.target.shape)}")
        count = asked.target.shape[1]
        if asked.mask is not None and asked.mask.ndim > 1 and asked.mask.shape[:2] != (samples, count):
            raise ShapeError(f"mask: expected [{samples}, {count}, …], got {list(asked.mask.shape)}")
        return Reading(count, per if count == rows else 1, self.delays[name])

    def _row_of(self, name: str) -> Shape:
        """Shape of what an output gives after a tick."""
        network = self._clocked.network
        return network.shapes[network.taps[name]][1:]

    def _pose(self, sequences: Sequences, start: int, stop: int) -> Posed:
        """Return the losses of what is read in a window."""
        asked: dict[str, Asked] = {}
        shapes: dict[str, Shape] = {}
        for name, (target, mask) in sequences.asked.items():
            read = sequences.readings[name].between(start, stop)
            if read:
                part = slice(read.start, read.stop)
                asked[name] = Asked(target[:, part], None if mask is None else mask[:, part])
                shapes[name] = (sequences.samples, len(read), *self._row_of(name))
        return pose(self._losses, asked, shapes)

    def _arrays(self, sequences: Sequences, start: int, stop: int) -> tuple[Ticks, list[Array]]:
        """Return a window, and what comes in with it."""
        per = self._mode.ticks_per_row
        first, last = (min(sequences.rows, -(-at // per)) for at in (start, stop))
        marks = None
        if sequences.marks is not None and sequences.marks[first:last].any():
            marks = np.zeros((stop - start, sequences.samples), np.float32)
            marks[first * per - start : stop - start : per][: last - first] = sequences.marks[first:last]
        ticks = Ticks(
            count=stop - start,
            given=tuple(sequences.given) if last > first else (),
            rows=tuple(range(first * per - start, last * per - start, per)),
            read=tuple((name, at) for name, of in sequences.readings.items() if (at := of.ticks(start, stop))),
            fresh=start == 0,
            resets=marks is not None,
        )
        arrays = [x[first:last] for x in sequences.given.values()] if last > first else []
        return ticks, arrays if marks is None else [*arrays, marks]

    def _run(
        self, streams: Streams, sequences: Sequences, start: int, stop: int, *, judged: bool
    ) -> tuple[Tally, dict[str, Array]]:
        """Run ticks that teach nothing; return loss and outputs as far as they are asked for."""
        ticks, arrays = self._arrays(sequences, start, stop)
        asked = self._pose(sequences, start, stop) if judged else Posed((), [], {})
        program = self._program(
            (streams.name, streams.machine.batch, ticks, asked.key),
            lambda: ticks_graph(streams, ticks, self._weights, asked.objectives),
        )
        found = program.run([*arrays, *asked.arrays])
        if not asked.counts:
            return Tally(), {}
        return asked.tally(found[0].tolist()), dict(zip(asked.counts, found[1:], strict=True))

    def _fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str:
        """Name what was not finite first."""
        piece = self._whole(batches[0])
        named = self._first_odd(self._check(piece), piece.start, piece.stop)
        odd = not np.isfinite(tally.total)
        return named or (self._loss_fault(tally) if odd else "the norm of the gradients, or a new weight")

    def _first_odd(self, sequences: Sequences, start: int, stop: int) -> str | None:
        """Run ticks once more on the host, and name the layer and the tick with the first odd number."""
        batch, per = sequences.samples, self._mode.ticks_per_row
        stream = ClockedStream(ReferenceDevice(), self._clocked, self.params(), batch=batch)
        if start:
            machine, place = self._of(LEARNS, batch).machine, self._of(LEARNS, batch).place
            held: dict[str, Array] = {}
            for key in kept_states(self._clocked):
                name, row = machine.locate(key)
                buffer = machine.buffers[name]
                held[key] = self._store.get(place(name)).reshape(buffer.count, batch, *buffer.row)[row or 0]
            stream.fill(held, start)
        for t in range(start, stop):
            row, late = divmod(t, per)
            if late or row >= sequences.rows:
                stream.run(ticks=1)
            else:
                marks = None if sequences.marks is None else sequences.marks[row][:, None]
                stream.run({name: x[row][:, None] for name, x in sequences.given.items()}, resets=marks)
            for coord, spec in self._clocked.network.layers.items():
                if not np.isfinite(stream.read(out_key(coord, 1))).all():
                    return f"{spec.kind} at {coord}, tick {t} of the sequences"
        return None
