"""History of a run of evolution for TensorBoard, by the writer that training uses."""

from __future__ import annotations

from pathlib import Path

from volumetric.evolution.reporters import Evaluated, Event, FrontEvaluated
from volumetric.train.tensorboard import TensorBoardReporter


class TensorBoard(TensorBoardReporter):
    """Writes fitness, species and sizes of every generation as scalars; needs no other library.

    Parameters
    ----------
    directory : where TensorBoard looks (``tensorboard --logdir``); a resumed run adds a file
    """

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        self._open = False

    def __call__(self, event: Event) -> None:
        """Write the numbers of an event."""
        if not isinstance(event, Evaluated | FrontEvaluated):
            return
        if not self._open:
            self.start(event.generation, 0)
            self._open = True
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
