"""History of a run of evolution for TensorBoard, by the writer that training uses."""

from __future__ import annotations

from volumetric.evolution.reporters import Evaluated, FrontEvaluated
from volumetric.reporting import Event
from volumetric.train.tensorboard import TensorBoardReporter


class TensorBoard(TensorBoardReporter):
    """Writes fitness, species and sizes of every generation as scalars; needs no other library.

    Parameters
    ----------
    directory : where TensorBoard looks (``tensorboard --logdir``); a resumed run adds a file
    """

    def report(self, event: Event, /) -> None:
        """Write the numbers of an event."""
        if isinstance(event, Evaluated | FrontEvaluated):
            self._scalars(event.generation, _numbers(event))


def _numbers(event: Evaluated | FrontEvaluated) -> dict[str, float]:
    if isinstance(event, FrontEvaluated):
        best = {f"front/best_{i}": max(values) for i, values in enumerate(zip(*event.front, strict=True))}
        return {"front/points": float(len(event.front)), "failures": float(event.failures), **best}
    return {
        "fitness/best": event.best,
        "fitness/mean": event.mean,
        "fitness/worst": event.worst,
        "species": float(len(event.species)),
        "best/hidden": float(event.best_hidden),
        "best/connections": float(event.best_connections),
        "failures": float(event.failures),
    }
