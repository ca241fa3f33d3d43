"""Online target propagation in a clocked network: each layer learns from arriving targets after each tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from volumetric.base._typing import Array
from volumetric.clocked.local_learning import taught_layers
from volumetric.clocked.online_learning import online_graph
from volumetric.train.clocked_sequences import Sequences
from volumetric.train.data import Batch
from volumetric.train.modes import TargetPropagation
from volumetric.train.output_losses import OutputTargets, Tally, Terms
from volumetric.train.prepared_batch import BatchObjective, prepare_objective
from volumetric.train.strategies import Update
from volumetric.train.target_credit import NOT_FINITE, InverseCredit, layer_targets
from volumetric.train.tbptt import LEARNS
from volumetric.train.ticked_time import TickedTime
from volumetric.train.trained_arrays import TrainedArrays

TICKS = "online/ticks"
"""Key of the learning ticks in checkpoints."""


class OnlineCredit(InverseCredit):
    """Target propagation while a clocked network runs, in memory independent of the number of ticks.

    A step is `TargetPropagation.window` ticks, or more if no row counts; layers learn after each tick.
    """

    def __init__(self, arrays: TrainedArrays, time: TickedTime, mode: TargetPropagation) -> None:
        super().__init__(arrays, mode, [stop.inverse for stop in time.wave.values() if stop.inverse is not None])
        self._time = time
        self._taught = taught_layers(time.clocked, arrays.shapes)
        self._ticked = 0
        self._at = (0, 0)

    @property
    def buffers(self) -> dict[str, Array]:
        return super().buffers | {TICKS: np.array([self._ticked], np.int32)}

    def restore(self, buffers: Mapping[str, Array]) -> None:
        self._ticked = int(buffers[TICKS][0])

    def update(self, batches: Sequence[Batch], rate: float) -> Update:
        """Run a window from `windows`; a tick with a fault leaves every weight unchanged."""
        piece = self._time.begin(batches)
        tally, parts, good = Tally(), list[Array](), True
        for start, stop in self._time.cut(piece.since, piece.stop):
            self._at = start, stop
            window_tally, numbers = self._window(piece.sequences, start, stop, rate)
            tally, good = tally + window_tally, bool(np.all(numbers[:, 1] == 1))
            parts.append(numbers)
            if not good:
                break
        every = np.concatenate(parts)
        norms = every[:, 0]
        norm, steepest = (float(norms.mean()), float(norms.max())) if len(every) else (0.0, 0.0)
        means = every.mean(0)[2:].tolist() if good and len(every) else []
        layers = [(str(c), self._time.clocked.network.layers[c].kind) for c in self._taught[: len(means) // 2]]
        return Update(tally=tally, norm=norm, steepest=steepest, good=good, layers=layer_targets(layers, means))

    def _window(self, sequences: Sequences, start: int, stop: int, rate: float) -> tuple[Tally, Array]:
        """Run a window; after a non-finite number the stream states are restored."""
        if self._arrays.device.unrolled:
            return self._learn(sequences, start, stop, rate)
        self._time.streams(LEARNS, sequences.samples)
        buffers, tally, parts = self._time.buffers(sequences.samples), Tally(), list[Array]()
        before = buffers.values()
        for tick in range(start, stop):
            tick_tally, numbers = self._learn(sequences, tick, tick + 1, rate)
            tally += tick_tally
            parts.append(numbers)
            if not np.all(numbers[:, 1] == 1):
                buffers.write(before)
                break
        return tally, np.concatenate(parts)

    def _learn(self, sequences: Sequences, start: int, stop: int, rate: float) -> tuple[Tally, Array]:
        """Run one program; return the loss, and the report of each tick with learning."""
        mode, own, losses = self._mode, self._arrays, self._arrays.losses
        streams = self._time.streams(LEARNS, sequences.samples)
        ticks, arrays = self._time.window(sequences, start, stop)
        learning = [t - start for t in range(start, stop) if not (t + 1) % mode.every]
        posed = self._prepare_objectives(sequences, start, stop)
        objectives = [each[0].objectives[0] for each in posed.values()]
        count = self._ticked
        since = count % mode.pinv_every
        if not since or since + len(learning) > mode.pinv_every:
            self._solved.refresh()
        for name, each in posed.items():
            arrays += [np.stack(parts) for parts in zip(*(one.arrays for one in each), strict=True)]
            counts = [one.counts[name] for one in each]
            scales = [[losses.scales({name: n})[name] if n > 0 else 0.0] for n in counts]
            arrays.append(np.array(scales, np.float32))
        if learning:
            arrays.append(np.stack([own.knobs(rate, 1.0, count + n + 1) for n in range(len(learning))]))
        if learning and self._noisy:
            turns = [(count + n, turn) for n in range(len(learning)) for turn in range(mode.inverse_steps)]
            spread = [self._spread(count + n) for n in range(len(learning))]
            arrays += [np.stack([own.noise_key(*turn) for turn in turns]), np.stack(spread)]
        program = own.program(
            "online",
            None,
            lambda: online_graph(streams, ticks, learning, own.weights, objectives, self._rule),
            *(streams.machine.batch, ticks, tuple(learning), tuple(of.key for of in objectives)),
        )
        outputs = program.run(arrays)
        numbers = outputs[0] if outputs else np.zeros(0, np.float32)
        self._ticked += len(learning)
        terms, at = dict[str, Terms](), 0
        for name, each in posed.items():
            terms[name] = Terms(float(numbers[at : at + len(each)].sum()), sum(one.counts[name] for one in each))
            at += len(each)
        return Tally(terms), numbers[at:].reshape(len(learning), 2 + 2 * len(self._taught))

    def _prepare_objectives(self, sequences: Sequences, start: int, stop: int) -> dict[str, list[BatchObjective]]:
        """Return the losses of the outputs that are read in some ticks, by output and tick."""
        posed, losses = dict[str, list[BatchObjective]](), self._arrays.losses
        for name, (target, mask) in sequences.targets.items():
            shape = {name: (sequences.samples, *self._time.row_of(name))}
            for n in sequences.readings[name].between(start, stop):
                targets = {name: OutputTargets(target[:, n], None if mask is None else mask[:, n])}
                posed.setdefault(name, []).append(prepare_objective(losses, targets, shape))
        return posed

    def fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str:
        named = self._time.first_not_finite(self._time.begin(batches).sequences, *self._at)
        return named or self._arrays.fault(tally, NOT_FINITE)
