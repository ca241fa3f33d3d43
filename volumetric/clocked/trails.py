"""States of streams for online learning: targets in transit, and past inputs of layers."""

from __future__ import annotations

from volumetric.clocked.machine import Clocked
from volumetric.clocked.wave import Stop, Wave
from volumetric.clocked.window import Machine
from volumetric.network.wiring import carries_ids
from volumetric.run.kept import Buffer


class OnlineMachine(Machine):
    """A machine that also keeps the targets in transit to its layers."""

    def __init__(self, clocked: Clocked, batch: int, wave: Wave) -> None:
        super().__init__(clocked, batch)
        self.wave = wave
        delays: dict[int, int] = {}
        for stop in wave.values():
            for ask in stop.asks:
                i, _ = self.places[ask.reader]
                delays[i] = max(delays.get(i, 0), ask.delay + 1)
        for i, ticks in delays.items():
            bucket = self.buckets[i]
            self.buffers |= {f"ask/{i}/{k}": Buffer(bucket.reads, bucket.size, apart=True) for k in range(1, ticks + 1)}
        for coord, stop in wave.items():
            if stop.loss_share:
                row = clocked.network.shapes[coord][1:]
                self.buffers |= {f"told/{coord}/{k}": Buffer(row, apart=True) for k in range(1, stop.lag + 1)}
        for i in range(len(self.buckets)):
            trail = self._trail(i)
            self.buffers |= {f"trail/{i}/{k}/{n}": b for k in range(1, self.lag(i) + 1) for n, b in trail.items()}

    def stops(self, i: int) -> dict[int, Stop]:
        """Return row of a bucket → its `Stop`, for layers that receive targets."""
        return {n: self.wave[c] for n, c in enumerate(self.buckets[i].coords) if c in self.wave}

    def lag(self, i: int) -> int:
        """Return the number of past inputs that a bucket keeps, in ticks."""
        return max((stop.lag for stop in self.stops(i).values()), default=0)

    def _trail(self, i: int) -> dict[str, Buffer]:
        """Return the buffers of one past tick of a bucket: its input, its states before the tick, and what fired."""
        bucket = self.buckets[i]
        ids = carries_ids(
            self.clocked.wires[bucket.coords[0]].inputs[0], self.clocked.wires, self.clocked.network.ports
        )
        read = Buffer(bucket.reads, bucket.size, apart=True, dtype="int32" if ids else "float32")
        return {"x": read, "fires": Buffer((), bucket.size, apart=True), **self.layer_states(i)}
