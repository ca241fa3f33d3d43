"""Credit assignment by backpropagation: gradients of the loss with respect to all weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from volumetric.run.graph.training_graphs import (
    ForwardPass,
    UpdateRule,
    gradient_graph,
    next_key,
    sum_key,
    update_graph,
)
from volumetric.train.data import Batch
from volumetric.train.output_losses import Tally
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
            rule = arrays.rule(one.posed.counts)
            program = arrays.program("step", one.of, lambda: self._time.step_graph(one.of, arrays.weights, rule))
            *totals, norm, good = program.run([*arrays.noise(one.of, 0), *one.arrays, knobs])[0].tolist()
            tally = one.posed.tally(totals)
        return Update(tally=tally, norm=norm, steepest=norm, good=bool(good))

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
