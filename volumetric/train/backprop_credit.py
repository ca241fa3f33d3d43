"""Credit assignment by backpropagation: gradients of the loss with respect to all weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.graph_device import GraphProgram
from volumetric.graph.run_series import Carry, SeriesInput, run_series
from volumetric.run.graph.training_graphs import ForwardPass, gradient_graph, next_key, sum_key, update_graph
from volumetric.run.graph.weight_updates import UpdateRule
from volumetric.train.data import Batch
from volumetric.train.output_losses import Tally
from volumetric.train.picked_batch import AnySamples, PickedBatch
from volumetric.train.prepared_batch import PreparedBatch
from volumetric.train.strategies import CreditStrategy, TimeStrategy, Update
from volumetric.train.trained_arrays import TrainedArrays


class BackpropCredit(CreditStrategy):
    """Weights follow the gradients of the loss. An update from one batch is one run of one graph."""

    def __init__(self, arrays: TrainedArrays, time: TimeStrategy) -> None:
        self._arrays, self._time = arrays, time

    def update(self, batches: Sequence[Batch], rate: float) -> Update:
        arrays = self._arrays
        ready, scale = self._time.prepare_update(batches)
        knobs = arrays.knobs(rate, scale)
        if len(ready) > 1:
            rule = arrays.rule({name for one in ready for name in one.posed.counts})
            tally = self._sum(ready, rule, scale)
            norm, good = 0.0, 0.0
            if np.isfinite(tally.total):
                program = arrays.program("update", None, lambda: update_graph(rule), tuple(rule.masters))
                norm, good = program.run([knobs])[0].tolist()
        else:
            [one] = ready
            inputs = [*arrays.noise(one.of, 0), *one.arrays, knobs, *self._before(one)]
            return _update_of(one, self.step_program(one).run(inputs)[0])
        return Update(tally=tally, norm=norm, steepest=norm, good=bool(good))

    def updates(self, batches: Sequence[AnySamples], rates: Sequence[float]) -> list[Update] | None:
        arrays = self._arrays
        if not self._time.independent:
            return None
        runs: list[tuple[GraphProgram, PreparedBatch[ForwardPass], list[SeriesInput]]] = []
        of, program, before = None, None, list[Array]()
        for ahead, (batch, rate) in enumerate(zip(batches, rates, strict=True)):
            try:
                [one], scale = self._prepare(batch)
                if one.of is not of or program is None:  # picked batches of one size share their pass
                    of, program, before = one.of, self.step_program(one), self._before(one)
                knobs = arrays.knobs(rate, scale, arrays.updates + ahead + 1)
                runs.append((program, one, [*arrays.noise(one.of, 0, ahead), *one.arrays, knobs, *before]))
            except Exception:
                if not runs:
                    raise
                break  # the updates before it are made; then its own update raises again
        updates: list[Update] = []
        for program, group in groupby(runs, key=lambda run: run[0]):
            several = list(group)
            carry = Carry(0, len(several[0][2]) - 1)
            results = run_series(program, [inputs for _, _, inputs in several], carry)
            for (_, one, _), [facts] in zip(several, results, strict=True):
                updates.append(_update_of(one, facts))
                if not updates[-1].good:
                    return updates
        return updates

    def _prepare(self, batch: AnySamples) -> tuple[list[PreparedBatch[ForwardPass]], float]:
        return (
            self._time.prepare_picked(batch) if isinstance(batch, PickedBatch) else self._time.prepare_update([batch])
        )

    def step_program(self, one: PreparedBatch[ForwardPass]) -> GraphProgram:
        """Return the program of an update by one batch."""
        arrays = self._arrays
        rule = arrays.rule(one.posed.counts)
        return arrays.program("step", one.of, lambda: self._time.step_graph(one.of, arrays.weights, rule))

    def _before(self, one: PreparedBatch[ForwardPass]) -> list[Array]:
        """Return the output of an update before the first, if the program takes it: it was written."""
        return [np.ones(len(one.posed.counts) + 2, self._arrays.float)] if self._time.chained else []

    def _sum(self, ready: Sequence[PreparedBatch[ForwardPass]], rule: UpdateRule, scale: float) -> Tally:
        """Sum the gradients of several batches; return the sums of their loss terms, up to the first non-finite one."""
        arrays, tally = self._arrays, Tally()
        factor = [np.array([scale], arrays.float)] if rule.scaled else []
        self._start_sums()
        for i, one in enumerate(ready):
            make = partial(gradient_graph, one.of, arrays.weights, rule)
            program = arrays.program("sum", one.of, make, tuple(rule.masters))
            keep = np.array([float(i > 0)], np.float32)
            tally += one.posed.tally(program.run([keep, *arrays.noise(one.of, i), *one.arrays, *factor])[0].tolist())
            if not np.isfinite(tally.total):
                break
        return tally

    def _start_sums(self) -> None:
        """Create the buffers of gradient sums and of changed layer buffers; only accumulation needs them."""
        arrays = self._arrays
        known = set(arrays.store.keys())
        names = {sum_key(key): shape for key, shape in arrays.stacks.shapes(arrays.shapes).items()}
        names |= {next_key(key): shape for key, shape in arrays.buffers.items()}
        for name, shape in names.items():
            if name not in known:
                arrays.store.write(name, np.zeros(shape, np.float32))

    def fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str:
        fault = self._time.fault(batches, rate, tally)
        return fault or self._arrays.fault(tally, "the norm of the gradients, or a new weight")


def _update_of(one: PreparedBatch[ForwardPass], facts: Array) -> Update:
    """Return the update whose program put out these numbers."""
    *totals, norm, good = facts.tolist()
    return Update(tally=one.posed.tally(totals), norm=norm, steepest=norm, good=bool(good))
