"""A sculpted stream behind a page: it runs in its own thread, does acts between ticks and sends frames."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.scope.machines_to_sculpt import KINDS, open_machine
from volumetric.base.errors import SpecError, VolumetricError
from volumetric.scope.document import encode_message
from volumetric.scope.sculpting import SculptedStream, sculpt_viewer
from volumetric.scope.sculpting.sculpting_session import SculptingSession

Wait = Callable[..., Mapping[str, Any]]


@contextmanager
def session_of(kind: str, rows: Any = "noise", **options: Any) -> Iterator[tuple[SculptingSession, Wait]]:
    """Run a session; the second value waits for a message of a kind that fulfils a condition."""
    session = SculptingSession(SculptedStream(open_machine(kind), rows), **options)
    messages: queue.Queue[Mapping[str, Any]] = queue.Queue()
    session.connect(messages.put)

    def wait(kind: str, fits: Callable[[Mapping[str, Any]], bool] = lambda message: True) -> Mapping[str, Any]:
        while True:
            message = messages.get(timeout=30)
            encode_message(message)
            if message["kind"] == kind and fits(message):
                return message

    try:
        yield session, wait
    finally:
        session.close()


@pytest.mark.parametrize("kind", KINDS)
def test_steps_send_frames_as_recordings_have_them(kind):
    with session_of(kind) as (session, wait):
        assert session.act("network", {"do": "step", "count": 3})["text"] == "3 ticks on"
        frame = wait("frame", lambda message: message["t"] == 3)
        scene = session.sculpted.origin.scene
        assert frame["node"].dtype == np.uint8
        assert frame["node"].shape == (len(scene.nodes),)
        assert frame["odd"].shape == frame["fired"].shape == (-(-len(scene.nodes) // 8),)
        assert frame["scale"].shape == (len(scene.groups),)
        assert "difference" not in frame
        session.act("network", {"do": "start_twin"})
        session.act("network", {"do": "mask", "nodes": [1]})
        session.act("network", {"do": "step"})
        difference = wait("frame")["difference"]
        assert difference.dtype == np.float16
        assert difference.any()


def test_a_page_that_connects_learns_how_things_stand():
    with session_of("fabric") as (session, wait):
        session.act("network", {"do": "step", "count": 5})
        wait("frame", lambda message: message["t"] == 5)
        session.act("network", {"do": "mask", "population": "core"})
        session.act("network", {"do": "cut", "source": 0, "target": 4})
        wait("status")
        snapshot, frame = session.snapshot()
        assert snapshot["kind"] == "snapshot"
        assert snapshot["history"]["done"][0] == "mask population core (4 nodes) at tick 5"
        assert snapshot["mask"].tolist() == [int(not 12 <= node < 16) for node in range(20)]
        assert frame["t"] == snapshot["t"] == 5
        cut = np.flatnonzero(snapshot["edgeMask"] == 0)
        assert [(int(snapshot["edges"]["source"][i]), int(snapshot["edges"]["target"][i])) for i in cut] == [(0, 4)]


def test_a_stream_runs_until_it_is_paused():
    with session_of("clocked", rate=None) as (session, wait):
        session.run()
        first = wait("frame")["t"]
        assert wait("frame", lambda message: message["t"] > first + 50)["t"] > first
        session.pause()
        at = session.sculpted.elapsed
        assert wait("status", lambda message: not message["running"])["t"] == at
        assert session.act("network", {"do": "rate", "rate": 1000})["text"] == "1000 ticks a second"
        session.run()
        wait("frame", lambda message: message["t"] >= at + 20)


def test_errors_of_rows_pause_the_stream():
    def rows(t: int) -> np.ndarray:
        if t == 4:
            raise ZeroDivisionError("at four")
        return np.zeros((1, 3), np.float32)

    with session_of("fabric", rows, rate=None) as (session, wait):
        session.run()
        status = wait("status", lambda message: message["error"] != "")
        assert status["error"] == "ZeroDivisionError: at four"
        assert not status["running"]
        session.act("network", {"do": "mask", "nodes": [1]})


def test_hostile_acts_are_refused_by_a_sentence():
    with session_of("fabric") as (session, _):
        for action in (
            {}, {"do": None}, {"do": []}, {"do": {}}, {"do": "__init__"}, {"do": "advance", "count": 10**9},
            {"do": "to_json"}, {"do": "save_copy", "path": "/tmp/x"}, {"do": "mask"}, {"do": "mask", "nodes": "abc"},
            {"do": "mask", "nodes": [[1]]}, {"do": "mask", "nodes": [True]}, {"do": "mask", "nodes": [1e400]},
            {"do": "mask", "nodes": [-1]}, {"do": "mask", "nodes": [2**70]}, {"do": "mask", "nodes": 3},
            {"do": "mask", "population": "x" * 10_000}, {"do": "mask", "population": {}}, {"do": "mask", "self": 1},
            {"do": "cut"}, {"do": "cut", "source": 0}, {"do": "cut", "source": "0", "target": 4},
            {"do": "connect", "source": 5, "target": 13, "delay": 10**9},
            {"do": "connect", "source": 5, "target": 13, "delay": 0.5},
            {"do": "clamp", "name": "eye", "values": "1"}, {"do": "clamp", "name": "eye", "values": [1] * 10**5},
            {"do": "clamp", "name": "eye", "values": [None] * 3}, {"do": "clamp", "name": ["eye"], "values": 1},
            {"do": "inject", "name": "eye", "values": float("inf")},
            {"do": "inject", "name": "eye", "values": 1, "ticks": 1e9},
            {"do": "set_clock", "node": 0, "clock": "every(" * 5000}, {"do": "set_clock", "node": [], "clock": None},
            {"do": "set_number", "node": 0, "number": 10**30, "value": 1}, {"do": "rate", "rate": 0},
            {"do": "rate", "rate": "fast"}, {"do": "rate", "rate": float("nan")}, {"do": "step", "count": -1},
            {"do": "step", "count": True}, {"do": "rewind", "name": "../x"}, {"do": "save_state", "name": ""},
            {"do": "save_state", "name": 3}, {"do": "script", "form": "exe"}, {"do": "node", "node": None},
            {"do": "node", "node": 10**20}, {"do": "undo"}, {"do": "redo"}, {"do": "reset", "population": 5},
        ):  # fmt: skip
            with pytest.raises(SpecError) as caught:
                session.act("network", action)
            assert "Traceback" not in str(caught.value)
        with pytest.raises(SpecError, match="no stream behind"):
            session.act("other", {"do": "run"})
        assert not session.sculpted.changes
        assert not session.sculpted.history.steps


def test_a_node_says_what_can_be_changed():
    with session_of("program") as (session, _):
        store = session.act("network", {"do": "node", "node": 2})
        assert store["clock"] == "every(4)"
        assert store["numbers"] == [{"label": "period", "value": 4}, {"label": "phase", "value": 0}]
        belief = session.act("network", {"do": "node", "node": 1})
        named = {edge["name"]: edge["when"] for edge in belief["own"]}
        assert "every(2)" in named.values()
        name = next(name for name, when in named.items() if when == "every(2)")
        assert session.act("network", {"do": "set_number", "node": name, "number": 0, "value": 3})["text"].startswith(
            "set period"
        )
        assert session.act("network", {"do": "node", "node": name})["clock"] == "every(3)"


def test_a_closed_session_refuses_acts_until_it_is_served_again():
    viewer = sculpt_viewer(open_machine("fabric"), rate=None, running=True)
    server = viewer.serve()
    server.close()
    assert isinstance(viewer.live, SculptingSession)
    with pytest.raises(VolumetricError, match="the stream has stopped"):
        viewer.live.act("network", {"do": "run"})
    server = viewer.serve()
    assert viewer.live.act("network", {"do": "pause"})["text"].startswith("paused at tick")
    server.close()
