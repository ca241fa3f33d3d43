"""States of streams for online learning: targets in transit, and past inputs of layers."""

from __future__ import annotations

from volumetric.clocked.machine import Clocked
from volumetric.clocked.target_schedule import TargetLayer, TargetSchedule
from volumetric.clocked.window import Machine
from volumetric.network.wiring import carries_ids
from volumetric.run.stream_buffers import StreamBufferSpec


class OnlineMachine(Machine):
    """A machine that also keeps the targets in transit to its layers."""

    def __init__(self, clocked: Clocked, batch: int, schedule: TargetSchedule) -> None:
        super().__init__(clocked, batch)
        self.schedule = schedule
        delays: dict[int, int] = {}
        for stop in schedule.values():
            for ask in stop.requests:
                i, _ = self.places[ask.reader]
                delays[i] = max(delays.get(i, 0), ask.delay + 1)
        for i, ticks in delays.items():
            bucket = self.buckets[i]
            self.buffers |= {
                f"ask/{i}/{k}": StreamBufferSpec(bucket.reads, bucket.size, separate_axes=True)
                for k in range(1, ticks + 1)
            }
        for coord, stop in schedule.items():
            if stop.loss_share:
                row = clocked.network.shapes[coord][1:]
                self.buffers |= {
                    f"told/{coord}/{k}": StreamBufferSpec(row, separate_axes=True) for k in range(1, stop.lag + 1)
                }
        for i in range(len(self.buckets)):
            trail = self._trail(i)
            self.buffers |= {f"trail/{i}/{k}/{n}": b for k in range(1, self.lag(i) + 1) for n, b in trail.items()}

    def stops(self, i: int) -> dict[int, TargetLayer]:
        """Return row of a bucket → its `TargetLayer`, for layers that receive targets."""
        return {n: self.schedule[c] for n, c in enumerate(self.buckets[i].coords) if c in self.schedule}

    def lag(self, i: int) -> int:
        """Return the number of past inputs that a bucket keeps, in ticks."""
        return max((stop.lag for stop in self.stops(i).values()), default=0)

    def _trail(self, i: int) -> dict[str, StreamBufferSpec]:
        """Return the buffers of one past tick of a bucket: its input, its states before the tick, and what fired."""
        bucket = self.buckets[i]
        ids = carries_ids(
            self.clocked.wires[bucket.coords[0]].inputs[0], self.clocked.wires, self.clocked.network.ports
        )
        read = StreamBufferSpec(bucket.reads, bucket.size, separate_axes=True, dtype="int32" if ids else "float32")
        return {"x": read, "fires": StreamBufferSpec((), bucket.size, separate_axes=True), **self.layer_states(i)}
