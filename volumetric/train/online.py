"""Learning by targets while a clocked network runs: after each tick every layer follows what has come to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.graph import GraphDevice
from volumetric.graph.stacks import Stacks
from volumetric.grid import Coord
from volumetric.network import Network
from volumetric.runtime.clocked.local import OnlineRule, taught
from volumetric.runtime.clocked.online import online_graph
from volumetric.runtime.clocked.trails import OnlineMachine
from volumetric.runtime.clocked.wave import Course, Wave, arrival, wave_of
from volumetric.runtime.clocked.window import Machine
from volumetric.runtime.graph.inverses import Inverse
from volumetric.train.by_output import Asked, Tally, Terms
from volumetric.train.clocked import LEARNS, ClockedLearner
from volumetric.train.data import Batch
from volumetric.train.learner import LayerTarget, LearnerOptions, LearnerState, StepReport
from volumetric.train.modes import TargetPropagation
from volumetric.train.objective import Posed, pose
from volumetric.train.pseudo_inverses import PseudoInverses
from volumetric.train.sequences import Sequences, piece_of
from volumetric.train.targets import first_inverses
from volumetric.weights import Params

TICKS = "online/ticks"
"""Name under which checkpoints have the ticks after which layers have learned."""


class OnlineLearner(ClockedLearner):
    """Trains a machine on a `GraphDevice` as it runs, in memory that does not depend on how long it does.

    Batches are those of `ClockedLearner`. A step is `TargetPropagation.window` ticks, or more where no row counts;
    layers learn after each of them. What is on its way to a layer when a stream begins anew, or a batch ends, is lost.

    Raises
    ------
    UnsupportedError : a target cannot cross one of the layers; the message names it
    """

    def __init__(self, network: Network, params: Params, options: LearnerOptions, device: GraphDevice) -> None:
        assert isinstance(options.mode, TargetPropagation)
        assert options.clocked is not None
        self._targets: TargetPropagation = options.mode
        mode = options.mode
        self._wave: Wave = wave_of(
            options.clocked,
            Course(
                method=mode.method,
                inverse=mode.inverse,
                top=mode.top,
                scale=mode.gradient_scale,
                growth=mode.growth,
                timing=mode.timing,
            ),
            options.losses.of,
        )
        if not self._wave:
            raise SpecError("no layer with weights reaches an output that has a loss", hint="a link must lead there")
        super().__init__(network, params, options, device)
        self._solved = PseudoInverses(self._inverses, network, self._store, mode.pinv_damping)
        self._ticked = 0
        self._at = (0, 0)

    def restore(self, state: LearnerState) -> None:
        """Continue from `state`. Raises `CheckpointError` where its arrays are not those of this machine."""
        super().restore(state)
        self._ticked = int(state.buffers[TICKS][0])

    def windows(self, batch: Batch) -> Iterator[Batch]:
        """Yield pieces with rows that count, and with the ticks around these that are learned from, too."""
        sequences, since = self._check(batch), 0
        cuts = self._cut(0, sequences.ticks)
        counted = [stop for start, stop in cuts if self._counts_any(sequences, start, stop)]
        for stop in counted:
            end = stop if stop != counted[-1] else self._last(sequences)
            yield piece_of(batch, since, since, end)
            since = end

    def _last(self, sequences: Sequences) -> int:
        """Ticks until what the last row was told has come to all layers."""
        return sequences.ticks + arrival(self._wave)

    def step(self, batches: Sequence[Batch], *, rate: float) -> StepReport:
        """Run a piece, as `windows` yields them; a tick with a fault leaves every weight as it was."""
        if len(batches) != 1:
            raise SpecError("a tick is of one batch: accumulate must be 1")
        piece = self._whole(batches[0])
        sequences = self._check(piece)
        tally, told, good = Tally(), list[Array](), True
        for start, stop in self._cut(piece.since, piece.stop):
            self._at = (start, stop)
            found, numbers = self._window(sequences, start, stop, rate)
            tally, good = tally + found, bool(np.all(numbers[:, 1] == 1))
            told.append(numbers)
            if not good:
                break
        every = np.concatenate(told)
        norm = float(every[:, 0].mean()) if len(every) else 0.0
        report = self._conclude(batches, tally, norm, good=good, rate=rate)
        if report.fault is not None:
            return report
        self._carried = None if piece.stop == self._last(sequences) else len(piece)
        clip = self._options.clip
        return dataclasses.replace(
            report, layers=self._layers(every), clipped=clip is not None and bool((every[:, 0] > clip).any())
        )

    def _window(self, sequences: Sequences, start: int, stop: int, rate: float) -> tuple[Tally, Array]:
        """Run a window; where a number is not finite, what streams keep is as it was before."""
        if self._device.unrolled:
            return self._learn(sequences, start, stop, rate)
        streams, tally, told = self._of(LEARNS, sequences.samples), Tally(), list[Array]()
        before = {place: self._store.get(place) for place in map(streams.place, streams.machine.buffers)}
        for tick in range(start, stop):
            found, numbers = self._learn(sequences, tick, tick + 1, rate)
            tally += found
            told.append(numbers)
            if not np.all(numbers[:, 1] == 1):
                self._store.put_together(before)
                break
        return tally, np.concatenate(told)

    def _learn(self, sequences: Sequences, start: int, stop: int, rate: float) -> tuple[Tally, Array]:
        """Run one program; return loss, and what each tick after which layers learn told."""
        mode, streams = self._targets, self._of(LEARNS, sequences.samples)
        ticks, arrays = self._arrays(sequences, start, stop)
        learning = [t - start for t in range(start, stop) if not (t + 1) % mode.every]
        posed = self._posed(sequences, start, stop)
        objectives = [each[0].objectives[0] for each in posed.values()]
        if self._is_time(len(learning)):
            self._solved.refresh()
        for name, each in posed.items():
            arrays += [np.stack(parts) for parts in zip(*(one.arrays for one in each), strict=True)]
            counts = [one.counts[name] for one in each]
            scales = [[self._losses.scales({name: n})[name] if n > 0 else 0.0] for n in counts]
            arrays.append(np.array(scales, np.float32))
        count = self._ticked
        if learning:
            arrays.append(np.stack([self._knobs(rate, 1.0, count + n + 1) for n in range(len(learning))]))
        if learning and any(inverse.layer for inverse in self._inverses):
            keys = [self._key(count + n, turn) for n in range(len(learning)) for turn in range(mode.inverse_steps)]
            spread = [[mode.noise * mode.noise_decay ** (count + n)] for n in range(len(learning))]
            arrays += [np.stack(keys), np.array(spread, np.float32)]
        program = self._program(
            ("online", streams.machine.batch, ticks, tuple(learning), tuple(of.key for of in objectives)),
            lambda: online_graph(streams, ticks, learning, self._weights, objectives, self._online),
        )
        made = program.run(arrays)
        numbers = made[0] if made else np.zeros(0, np.float32)
        self._ticked += len(learning)
        terms, at = dict[str, Terms](), 0
        for name, each in posed.items():
            terms[name] = Terms(float(numbers[at : at + len(each)].sum()), sum(one.counts[name] for one in each))
            at += len(each)
        return Tally(terms), numbers[at:].reshape(len(learning), 2 + 2 * len(self._taught))

    def _posed(self, sequences: Sequences, start: int, stop: int) -> dict[str, list[Posed]]:
        """Return the losses of what is read in some ticks, by output and tick by tick."""
        found: dict[str, list[Posed]] = {}
        for name, (target, mask) in sequences.asked.items():
            shape = {name: (sequences.samples, *self._row_of(name))}
            for n in sequences.readings[name].between(start, stop):
                asked = {name: Asked(target[:, n], None if mask is None else mask[:, n])}
                found.setdefault(name, []).append(pose(self._losses, asked, shape))
        return found

    def _is_time(self, ticks: int) -> bool:
        """Whether pseudo-inverses are to be computed anew within some ticks."""
        since, every = self._ticked % self._targets.pinv_every, self._targets.pinv_every
        return not since or since + ticks > every

    def _layers(self, told: Array) -> tuple[LayerTarget, ...]:
        """Return means over ticks of what layers were told."""
        means = told.mean(0)[2:].tolist() if len(told) else []
        return tuple(
            LayerTarget(where=str(coord), kind=self._clocked.network.layers[coord].kind, budget=budget, gap=gap)
            for coord, budget, gap in zip(self._taught, means[::2], means[1::2], strict=False)
        )

    @property
    def _inverses(self) -> list[Inverse]:
        return [stop.inverse for stop in self._wave.values() if stop.inverse is not None]

    @cached_property
    def _taught(self) -> list[Coord]:
        return taught(self._clocked, self._shapes)

    @cached_property
    def _online(self) -> OnlineRule:
        mode = self._targets
        return OnlineRule(
            update=self._rule(self._losses.of),
            clamp=mode.clamp,
            gate=mode.gate,
            inverse_steps=mode.inverse_steps,
            inverse_rate=mode.inverse_share(self._options.optimiser.lr),
        )

    def _stacked(self) -> Stacks:
        """Return nothing: each weight has a pace of its own, which its budgets give."""
        return Stacks()

    def _machine(self, name: str, batch: int) -> Machine:
        return OnlineMachine(self._clocked, batch, self._wave) if name == LEARNS else super()._machine(name, batch)

    def _extra_masters(self) -> dict[str, Array]:
        return first_inverses(self._inverses, self._options.seed)

    def _learned(self) -> dict[str, Array]:
        return super()._learned() | self._solved.values | {TICKS: np.array([self._ticked], np.int32)}

    def _fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str:
        """Name what was not finite first."""
        named = self._first_odd(self._check(batches[0]), *self._at)
        odd = not np.isfinite(tally.total)
        return named or (self._loss_fault(tally) if odd else "a target, or what is learned from it")
