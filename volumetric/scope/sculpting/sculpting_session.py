"""A sculpted stream that runs in a thread of its own behind a page."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from time import perf_counter
from typing import Any, Final

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError, VolumetricError
from volumetric.observe.recorder import ActivityFrame
from volumetric.scope.sculpting.live_messages import FrameMessages, inputs_data, structure_data
from volumetric.scope.sculpting.node_facts import list_edges
from volumetric.scope.sculpting.sculpted_stream import STEPS, SculptedStream

FRAMES: Final = 30
"""Maximum number of frames a second."""
FASTEST: Final = 1e6
"""Maximum rate that can be asked for, in ticks a second."""
MOST_TICKS: Final = 4096
"""Maximum ticks from one frame to the next, so that acts do not wait."""
_PATIENCE: Final = 60.0  # seconds that an act waits for its turn
_STATUS: Final = 0.5  # seconds between two messages about the rate
Message = Mapping[str, Any]


class SculptingSession:
    """Runs a stream in its own thread, sends frames, and does the acts of pages between ticks.

    It is a `LiveSource`. All pages see the same stream.

    Parameters
    ----------
    view : name of the view that it belongs to
    rate : ticks, or rows, a second; None: as many as possible
    running : whether it runs at once
    """

    def __init__(
        self, sculpted: SculptedStream, *, view: str = "network", rate: float | None = 10.0, running: bool = False
    ) -> None:
        self.sculpted: SculptedStream = sculpted
        self._view, self._rate, self._running = view, _checked_rate(rate), running
        self._frames = FrameMessages(sculpted, view)
        self._wake = threading.Condition()
        self._waiting: deque[tuple[Callable[[], Mapping[str, Any]], Future[Mapping[str, Any]]]] = deque()
        self._closing = False
        self._send: Callable[[Message], None] = lambda message: None
        self._thread: threading.Thread | None = None
        self._error = ""
        self._steps = 0
        self._per_tick = 0.0
        self._credit, self._last_turn, self._last_frame, self._last_status = 0.0, perf_counter(), 0.0, 0.0
        self._count_from, self._measured = (perf_counter(), 0), 0.0
        self._number = 0
        self._frame: Message | None = None
        self._state: Message = self._changed_message("")
        self._status: Message = self._status_message()

    def connect(self, send: Callable[[Message], None]) -> None:
        """Take the function that sends messages, and start the thread, also again after `close`."""
        self._send = send
        if self._thread is None or not self._thread.is_alive():
            self._closing = False
            self._thread = threading.Thread(target=self._loop, name="sculpting", daemon=True)
            self._thread.start()

    def snapshot(self) -> list[Message]:
        """Return the messages that a page gets first: everything as it is now, and the last frame."""
        frames = [] if self._frame is None else [self._frame]
        return [{**self._state, **self._status, "kind": "snapshot"}, *frames]

    def act(self, view: str, action: Message) -> Mapping[str, Any]:
        """Do what a page asks, between two ticks, and return JSON data with a sentence ``text``.

        Raises
        ------
        SpecError : the act is unknown or not possible, its arguments are invalid, or the stream has stopped
        """
        if view != self._view:
            raise SpecError(f"there is no stream behind the view {view!r:.60}")
        name = action.get("do")
        arguments = {key: value for key, value in action.items() if key != "do"}
        return self._in_thread(lambda: self._do(name, arguments))

    def close(self) -> None:
        """Stop the stream and its thread; acts that wait are refused."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5.0)
        self._refuse_waiting()

    def run(self) -> None:
        """Let the stream run."""
        self._in_thread(lambda: self._do("run", {}))

    def pause(self) -> None:
        """Let the stream rest."""
        self._in_thread(lambda: self._do("pause", {}))

    def _in_thread(self, work: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        future: Future[Mapping[str, Any]] = Future()
        with self._wake:
            if self._closing:
                raise SpecError("the stream has stopped")
            self._waiting.append((work, future))
            self._wake.notify_all()
        try:
            return future.result(_PATIENCE)
        except FutureTimeoutError:
            future.cancel()
            raise SpecError(f"the stream did not get to this within {_PATIENCE:g} s") from None

    def _loop(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closing or self._waiting or self._due_in() <= 0, self._due_in())
                if self._closing:
                    break
                work = [self._waiting.popleft() for _ in range(len(self._waiting))]
            for call, future in work:
                if future.set_running_or_notify_cancel():
                    self._answer(call, future)
            if self._due_in() <= 0:
                self._turn()
        self._refuse_waiting()

    def _answer(self, call: Callable[[], Mapping[str, Any]], future: Future[Mapping[str, Any]]) -> None:
        try:
            future.set_result(call())
        except VolumetricError as error:
            future.set_exception(error)
        except Exception as error:
            future.set_exception(SpecError(f"{type(error).__name__}: {error}"))

    def _refuse_waiting(self) -> None:
        with self._wake:
            left = [future for _, future in self._waiting]
            self._waiting.clear()
        for future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(SpecError("the stream has stopped"))

    def _due_in(self) -> float:
        """Return the seconds until the next ticks are due; a long time while the stream rests."""
        if self._steps:
            return 0.0
        if not self._running:
            return 3600.0
        now = perf_counter()
        if self._rate is None:
            return self._last_frame + 1 / FRAMES - now if self._per_tick * MOST_TICKS < 1 / FRAMES else 0.0
        credit = self._credit + (now - self._last_turn) * self._rate
        return max((1 - credit) / self._rate, self._last_frame + 1 / FRAMES - now)

    def _turn(self) -> None:
        """Run the ticks that are due, and send a frame of the last one."""
        now = perf_counter()
        fitting = MOST_TICKS if not self._per_tick else max(1, min(MOST_TICKS, int(1 / FRAMES / self._per_tick)))
        if self._steps:
            count = min(self._steps, fitting)
            self._steps -= count
        elif self._rate is None:
            count = fitting if self._per_tick else 1
        else:
            self._credit = min(self._credit + (now - self._last_turn) * self._rate, float(fitting))
            count = max(1, int(self._credit))
            self._credit -= count
        self._last_turn = self._last_frame = now
        try:
            self.sculpted.advance(count, self._see)
        except Exception as error:
            self._running, self._steps = False, 0
            self._error = str(error) if isinstance(error, VolumetricError) else f"{type(error).__name__}: {error}"
            self._tell_status()
            return
        taken = (perf_counter() - now) / count
        self._per_tick = taken if not self._per_tick else 0.7 * self._per_tick + 0.3 * taken
        self._measure()

    def _see(self, frame: ActivityFrame, twin: Array | None) -> None:
        self._frame = self._frames.message(frame, twin)
        self._send(self._frame)

    def _measure(self) -> None:
        now, (since, count) = perf_counter(), self._count_from
        if now - since >= _STATUS or not self._running:
            self._measured = (self.sculpted.elapsed - count) / max(now - since, 1e-9)
            self._count_from = now, self.sculpted.elapsed
            self._tell_status()

    def _do(self, name: object, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do one act, in the thread of the stream."""
        if isinstance(name, str) and name in STEPS:
            _check_arguments(name, getattr(self.sculpted, name), arguments)
            text = getattr(self.sculpted, name)(**arguments)
            self._state = self._changed_message(text)
            self._send(self._state)
            self._tell_status()
            return {"text": text, "number": self._number}
        ways: dict[object, Callable[..., Mapping[str, Any]]] = {
            "run": self._start, "pause": self._pause, "step": self._step, "rate": self._set_rate,
            "node": self._node, "script": self._script,
        }  # fmt: skip
        if name not in ways:
            raise SpecError(f"there is no act {name!r:.60}", hint="acts are " + ", ".join((*STEPS, *map(str, ways))))
        _check_arguments(str(name), ways[name], arguments)
        return ways[name](**arguments)

    def _start(self) -> Mapping[str, Any]:
        self._running, self._error, self._credit, self._last_turn = True, "", 1.0, perf_counter()
        self._count_from = perf_counter(), self.sculpted.elapsed
        return self._say("running")

    def _pause(self) -> Mapping[str, Any]:
        self._running, self._steps = False, 0
        return self._say(f"paused at tick {self.sculpted.elapsed}")

    def _step(self, count: int = 1) -> Mapping[str, Any]:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1_000_000:
            raise SpecError(f"a step is 1 … 1,000,000 ticks, got {count!r:.40}")
        self._running, self._steps, self._error = False, count, ""
        return self._say(f"{count} {'tick' if count == 1 else 'ticks'} on")

    def _set_rate(self, rate: float | None = None) -> Mapping[str, Any]:
        self._rate = _checked_rate(rate)
        self._credit, self._last_turn = 0.0, perf_counter()
        return self._say("as fast as possible" if self._rate is None else f"{self._rate:g} ticks a second")

    def _say(self, text: str) -> Mapping[str, Any]:
        self._tell_status()
        return {"text": text}

    def _node(self, node: int | str) -> Mapping[str, Any]:
        sculpted = self.sculpted
        facts = sculpted.node_facts(node)
        edges = [] if isinstance(node, str) else list_edges(sculpted.places, sculpted.changes, node)
        masked = isinstance(node, int) and node in sculpted.changes.masked
        return {**facts.describe(), "edges": edges, "masked": masked, "own": _edge_names(sculpted, node)}

    def _script(self, form: str = "python") -> Mapping[str, Any]:
        if form not in ("python", "json"):
            raise SpecError(f"a history is python or json, got {form!r:.40}")
        return {"text": self.sculpted.to_python() if form == "python" else self.sculpted.to_json()}

    def _tell_status(self) -> None:
        self._status = self._status_message()
        self._send(self._status)

    def _status_message(self) -> dict[str, Any]:
        sculpted, seconds = self.sculpted, self.sculpted.seconds
        total = seconds["stream"] + seconds["twin"]
        return {
            "view": self._view,
            "kind": "status",
            "running": self._running,
            "rate": self._rate,
            "measured": self._measured if self._running else 0.0,
            "t": sculpted.elapsed,
            "twinShare": seconds["twin"] / total if sculpted.has_twin and total else 0.0,
            "error": self._error,
        }

    def _changed_message(self, text: str) -> dict[str, Any]:
        self._number += 1
        return {
            "view": self._view,
            "kind": "changed",
            "number": self._number,
            "text": text,
            "history": self.sculpted.history.describe(),
            **inputs_data(self.sculpted),
            **structure_data(self.sculpted),
        }


def _edge_names(sculpted: SculptedStream, node: int | str) -> list[dict[str, Any]]:
    """Return the edges of a region of a program that have names, and so conditions."""
    program = sculpted.places.program
    if program is None or isinstance(node, str):
        return []
    region = sculpted.origin.region(node)
    mine = [edge for edge in program.program.edges if edge.writes == region]
    return [{"name": str(edge.name), "reads": edge.reads, "when": edge.when} for edge in mine[:100]]


def _checked_rate(rate: float | None) -> float | None:
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0.01 <= rate <= FASTEST:
        raise SpecError(f"a rate is 0.01 … {FASTEST:,.0f} ticks a second, got {rate!r:.40}", hint="None: no limit")
    return float(rate)


def _check_arguments(name: str, method: Callable[..., object], arguments: Mapping[str, Any]) -> None:
    """Raise `SpecError` if an act lacks arguments or does not take them, or if a value is too large."""
    import inspect

    try:
        inspect.signature(method).bind(**arguments)
    except TypeError as error:
        raise SpecError(f"{name}: {error}") from None
    for key, value in arguments.items():
        if not isinstance(value, (str, int, float, list, type(None))) or (isinstance(value, str) and len(value) > 1000):
            raise SpecError(f"{name}: {key} is invalid")
        if isinstance(value, list) and not all(isinstance(one, (int, float, type(None))) for one in value):
            raise SpecError(f"{name}: {key} must be a list of numbers")
