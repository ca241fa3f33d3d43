"""What a machine keeps of its streams while its layers learn from targets that are on their way."""

from __future__ import annotations

from volumetric.clocked.machine import Clocked
from volumetric.clocked.wave import Stop, Wave
from volumetric.clocked.window import Machine
from volumetric.network.wiring import carries_ids
from volumetric.run.kept import Buffer


class OnlineMachine(Machine):
    """A machine that keeps what is on its way to its layers, too."""

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
        """Row of a bucket → the layer there, of those that targets come to."""
        return {n: self.wave[c] for n, c in enumerate(self.buckets[i].coords) if c in self.wave}

    def lag(self, i: int) -> int:
        """How many ticks back a bucket must know what it read."""
        return max((stop.lag for stop in self.stops(i).values()), default=0)

    def _trail(self, i: int) -> dict[str, Buffer]:
        """What a bucket remembers of a tick: what it read, the states that it found, and what fired."""
        bucket = self.buckets[i]
        ids = carries_ids(
            self.clocked.wires[bucket.coords[0]].inputs[0], self.clocked.wires, self.clocked.network.ports
        )
        read = Buffer(bucket.reads, bucket.size, apart=True, dtype="int32" if ids else "float32")
        return {"x": read, "fires": Buffer((), bucket.size, apart=True), **self.layer_states(i)}
