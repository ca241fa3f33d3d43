"""Streams watched a few times a second: frames are those of a recording, and everything else runs as without."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from tests.devices import device
from tests.examples.fabrics import MIXED
from tests.examples.programs import TIMED
from tests.observe.test_activity import MACHINES, NETWORK, PARAMS
from volumetric.base.errors import SpecError
from volumetric.builders import chain
from volumetric.clocked import Clocked
from volumetric.layers import Dense
from volumetric.layers.clock import Event
from volumetric.network import initialise
from volumetric.network.grid import Coord
from volumetric.observe import Recorder
from volumetric.observe.frame_blocks import ActivityFrame
from volumetric.observe.frame_pace import FramePace
from volumetric.run.streams import open_stream
from volumetric.run.streams.stream_chunks import StreamChunk

FABRIC = chain([Dense(in_features=4, out_features=3), MIXED, Dense(in_features=3, out_features=2)], (4,))
PROGRAM = chain([TIMED], (3,))
SUBJECTS: dict[str, Any] = {
    **MACHINES,
    "fabric": FABRIC,
    "fabric in ticks": Clocked(network=FABRIC),
    "program": PROGRAM,
    "events": Clocked(network=NETWORK, clocks={Coord(1): Event("0.0.0.0.rms", above=0.4)}),
}


class Clock:
    """Seconds that pass only when a stream runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def slowed(stream: Any, clock: Clock, seconds: float) -> None:
    """Let every row of a stream take some seconds of a clock."""
    advance = stream.advance

    def slow(chunk: StreamChunk, **more: Any) -> Any:
        clock.now += seconds * chunk.count
        return advance(chunk, **more)

    stream.advance = slow


def paced(stream: Any, seconds: float, rate: float, frames: list[ActivityFrame], **more: Any) -> Recorder:
    recorder = Recorder(stream, most=0, rate=rate, tell=frames.append, row=1, **more)
    clock = Clock()
    recorder._pace = FramePace(rate, clock)
    slowed(recorder._tapped or stream, clock, seconds)
    return recorder


def cases() -> list[Any]:
    quick = (("systolic", 1), ("fabric", 1), ("events", 3))
    every = [
        (name, per_row) for name, of in SUBJECTS.items() for per_row in ((1, 3) if isinstance(of, Clocked) else (1,))
    ]
    return [pytest.param(*case, marks=[] if case in quick else [pytest.mark.thorough]) for case in every]


@pytest.mark.parametrize(("name", "per_row"), cases())
def test_frames_told_are_those_of_a_recording(name: str, per_row: int) -> None:
    machine = SUBJECTS[name]
    clocked = isinstance(machine, Clocked)
    params = PARAMS if name in MACHINES or name == "events" else initialise(machine.network if clocked else machine, 1)
    width = 3 if name == "program" else 4
    x = np.random.default_rng(0).standard_normal((2, 40, width)).astype(np.float32)
    resets = np.zeros((2, 40), np.int64)
    resets[1, [3, 17, 30]] = 1
    whole, plain, watched = (cast(Any, open_stream(device("reference"), machine, params, batch=2)) for _ in range(3))
    recorder, frames = Recorder(whole, row=1), list[ActivityFrame]()
    watcher = paced(watched, 1 / 64, 8, frames)
    outputs, wanted = list[Any](), list[Any]()
    for at, stop in ((0, 10), (10, 26), (26, 27), (27, 40)):
        chunk = StreamChunk(x={"input": x[:, at:stop]}, count=stop - at, resets=resets[:, at:stop])
        recorder.advance(chunk, per_row=per_row)
        outputs.append(watcher.advance(chunk, per_row=per_row))
        wanted.append(plain.advance(chunk, per_row=per_row) if clocked else plain.advance(chunk))
    if clocked:
        for stream in (recorder, watcher):
            stream.advance(StreamChunk(x={}, count=7))  # ticks on the values that inputs hold
        plain.advance(StreamChunk(x={}, count=7))
    watcher.close()
    np.testing.assert_allclose(np.concatenate(outputs, 1), np.concatenate(wanted, 1), rtol=0, atol=1e-6)
    if "fabric" in name:  # which are called row by row, and the layers beside them with them
        x = {"input": x[:, :5]}
        np.testing.assert_allclose(watched.run(x), plain.run(x), rtol=0, atol=1e-6)
    else:
        assert watched.save() == plain.save()
    assert watcher.tick_count == recorder.tick_count == watcher._missed
    assert watcher.frame_count == 0
    assert recorder.frame_count == recorder.tick_count == len(recorder.frames)
    times = [frame.t for frame in frames]
    assert (4 if clocked or name == "fabric" else 2) <= len(times) <= 1 + recorder.tick_count // 4
    assert times == sorted(set(times))
    by_time = {frame.t: frame for frame in recorder.frames}
    before = 0
    for frame in frames:
        full = by_time[frame.t]
        np.testing.assert_allclose(frame.rms, full.rms, rtol=0, atol=1e-6)
        assert frame.fired.tolist() == full.fired.tolist()
        np.testing.assert_array_equal(frame.edge, full.edge)
        assert frame.reset == any(by_time[t].reset for t in range(before + 1, frame.t + 1))
        before = frame.t


def test_a_recorder_stores_all_frames_and_tells_some() -> None:
    frames = list[ActivityFrame]()
    stream = open_stream(device("reference"), MACHINES["systolic"], PARAMS, batch=2)
    recorder = paced(stream, 1 / 64, 16, frames)
    recorder._room = 30
    recorder.advance(StreamChunk(x={"input": np.ones((2, 40, 4), np.float32)}, count=40))
    assert (recorder.frame_count, recorder._missed) == (30, 10)
    assert [frame.t for frame in frames] == [1, *range(4, 41, 4)]


def test_calls_fit_between_frames() -> None:
    clock = Clock()
    pace = FramePace(8, clock)

    def calls(count: int, seconds: float) -> list[tuple[int, bool]]:
        found = []
        for first, last, due in pace.calls(count):
            clock.now += seconds * (last - first)
            if due:
                pace.skip()
            found.append((last - first, due))
        return found

    assert calls(64, 1 / 64) == [(1, True), (16, True), (16, True), (16, True), (15, True)]
    assert sum(rows for rows, _ in calls(50, 1 / 64)) == 50
    pace.skip()
    assert calls(64, 2**-12) == [(16, True), (48, False)]  # all rows, once it is known how fast they are
    clock.now += 1
    assert pace.due
    assert calls(64, 2**-12) == [(64, True)]
    assert [rows for rows, _ in calls(0, 1)] == [0]
    for rate in (0, -1, float("nan")):
        with pytest.raises(SpecError, match="above 0"):
            FramePace(rate)
