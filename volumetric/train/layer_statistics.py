"""Statistics of every layer in updates, computed on the device in one more run for each batch."""

from __future__ import annotations

from collections.abc import Sequence

from volumetric.graph import Graph
from volumetric.observe.layer_events import ACTIVE_ABOVE, Observer, Stats, Watch
from volumetric.run.graph.training_graphs import ForwardPass, WatchedValue, watch_graph
from volumetric.train.prepared_batch import PreparedBatch
from volumetric.train.trained_arrays import TrainedArrays


class LayerStatistics:
    """Reports statistics of every layer, forward and backward, to observers."""

    def __init__(self, arrays: TrainedArrays, observers: Sequence[Observer]) -> None:
        self._arrays, self._watch = arrays, Watch(observers)
        self._makes = {step.outputs[0]: step for step in arrays.plan.steps}
        self._watched: dict[tuple[object, ...], tuple[WatchedValue, ...]] = {}

    def unwanted(self, most: int) -> int:
        """Return how many of the next `most` updates come before one whose statistics an observer wants."""
        updates = self._arrays.updates
        return next((ahead for ahead in range(most) if self._watch.is_wanted(updates + 1 + ahead)), most)

    def observe(self, ready: Sequence[PreparedBatch[ForwardPass]]) -> None:
        """Collect the statistics of all batches of an update, with the weights before it."""
        self._watch.drop()  # statistics of an update with a fault
        if self.unwanted(1):
            return
        for part, one in enumerate(ready):
            program = self._arrays.program("watch", one.of, lambda of=one.of: self._graph(of))
            outputs = program.run([*self._arrays.noise(one.of, part), *one.arrays])
            if outputs:
                rows = outputs[0].reshape(-1, 4).tolist()
                for entry, (low, high, mean, active) in zip(self._watched[one.of.key], rows, strict=True):
                    stats = Stats(min=low, max=high, mean=mean, active=active, total=entry.size)
                    self._watch.add(entry.mode, self._makes[entry.value], stats)

    def tell(self) -> None:
        """Report an applied update to the observers."""
        self._watch.flush(self._arrays.updates)

    def _graph(self, of: ForwardPass) -> Graph:
        rule = self._arrays.rule([objective.name for objective in of.objectives])
        graph, self._watched[of.key] = watch_graph(of, self._arrays.weights, rule, ACTIVE_ABOVE)
        return graph
