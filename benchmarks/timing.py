"""Timing: bursts of runs, rounds of them in turn with a peer, and what figures of rounds say together."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from volumetric.graph import GraphProgram
    from volumetric.run.device import Device

_WARM_RUNS, _WARM_SECONDS = 16, 0.5
_WARM_MOST = 2.0
"""Seconds of warm-up after which few runs are enough: such a run is in parts, which are measured one by one."""


def bursts(program: GraphProgram) -> Callable[[int], float]:
    """Return what runs a program so many times and gives the seconds of one run; only the last run is waited for."""
    submit = getattr(program, "submit", None) or program.run

    def burst(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count - 1):
            submit([])
        program.run([])
        return (time.perf_counter() - start) / count

    return burst


def enough(burst: Callable[[int], float], seconds: float) -> int:
    """Return how many runs take about so long, after a warm-up in which devices choose how they run a program.

    The CPU device puts its number of threads to the proof within the first dozen runs.
    """
    start, spent = time.perf_counter(), 0.0
    for number in range(1, _WARM_RUNS + 1):
        burst(1)
        spent = time.perf_counter() - start
        if spent > _WARM_MOST or (2 * number > _WARM_RUNS and spent > _WARM_SECONDS):
            break
    each = burst(2 if spent < _WARM_MOST else 1)
    return max(1, min(1000, int(seconds / max(each, 1e-6))))


def each(run: Callable[[], object]) -> Callable[[int], float]:
    """Return what makes some runs and tells the seconds of one."""

    def burst(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - start) / count

    return burst


def spread(values: Sequence[float], form: str = ".0f") -> str:
    """Return ``median (least–greatest)``."""
    return f"{statistics.median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return the median of sorted values, and the ends of the middle nine tenths."""
    low, middle, high = (round(float(values[int(len(values) * part)]), 2) for part in (0.05, 0.5, 0.95))
    return {"median": middle, "low": low, "high": high}


class Peer(Protocol):
    """What runs the same elsewhere, and tells the seconds of a run by the clock and of its processor time."""

    def times(self, role: str) -> tuple[float, float]: ...


@dataclass(slots=True)
class Rates:
    """Rates of a program and of its peer over rounds, in units a second: rows, ticks, tokens.

    Attributes
    ----------
    burst : makes some runs and returns the seconds of one
    units : of a run
    count : runs of a burst
    ours, busy : of each round: by the clock, and for a second of this process's processor time, which others on the
        machine disturb less
    theirs, theirs_busy : the peer's
    """

    burst: Callable[[int], float]
    units: int
    count: int
    ours: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    theirs_busy: list[float] = field(default_factory=list)

    @classmethod
    def warm(cls, burst: Callable[[int], float], units: int, seconds: float) -> Rates:
        """Return those of bursts that take about so long, after a warm-up."""
        return cls(burst, units, enough(burst, seconds))

    def run(self) -> None:
        """Time a burst."""
        used = time.process_time()
        self.ours.append(self.units / self.burst(self.count))
        self.busy.append(self.units * self.count / max(time.process_time() - used, 1e-9))

    def run_peer(self, peer: Peer, role: str, pause: float) -> None:
        """Time a burst of the peer, and wait: its threads spin on for a while and take our cores."""
        seconds, busy = peer.times(role)
        self.theirs.append(self.units / seconds)
        self.theirs_busy.append(self.units / max(busy, 1e-9))
        time.sleep(pause)

    @property
    def least(self) -> float:
        """The lowest of our rates."""
        return min(self.ours)

    @property
    def most(self) -> float:
        """The highest of our rates."""
        return max(self.ours)

    def figures(self, device: Device) -> dict[str, Any]:
        """Return what a `Row` says of the rounds on a device."""
        return {
            "device": device.info.name,
            "rate": statistics.median(self.ours),
            "least": self.least,
            "most": self.most,
            "busy": statistics.median(self.busy),
            "peer": median(self.theirs),
            "peer_busy": median(self.theirs_busy),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the rows of suites say of rates.

    Attributes
    ----------
    rate, least, most : units a second of the rounds: median and extremes
    busy : median of the units for a second of this process's processor time, which others on the machine disturb less
    peer, peer_busy : medians of the peer's in the same rounds, likewise; None without one
    """

    device: str
    rate: float
    least: float
    most: float
    busy: float
    peer: float | None = None
    peer_busy: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the peer."""
        return None if self.peer is None else self.rate / self.peer

    @property
    def busy_ratio(self) -> float | None:
        """The same by processor time: how much more it gets done with one core."""
        return None if self.peer_busy is None else self.busy / self.peer_busy

    def values(self) -> dict[str, Any]:
        """Return all that it says, for files."""
        return {**asdict(self), "ratio": self.ratio, "busy_ratio": self.busy_ratio}

    def shown(self, digits: int = 0) -> list[str]:
        """Return the rate with its extremes, and that by processor time, for tables."""
        rate, least, most = (f"{value:,.{digits}f}" for value in (self.rate, self.least, self.most))
        return [f"{rate} ({least}–{most})", f"{self.busy:,.{digits}f}"]


def median(rates: Sequence[float]) -> float | None:
    """Return the median, or None of nothing: without a peer there are no rates of it."""
    return statistics.median(rates) if rates else None


def number_or_dash(value: float | None, digits: int) -> str:
    """Return a number with so many digits behind the point; a dash for one that was not measured."""
    return "-" if value is None else f"{value:,.{digits}f}"
