"""Training and evolution tell the same kind of reporters."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.train.problems import perceptron
from volumetric.base.errors import SpecError
from volumetric.base.reporting import ConsoleReporter
from volumetric.evolution import EvolutionConfig, ParetoRun, Population, problems
from volumetric.network import initialise
from volumetric.train import TrainConfig, train

X, Y = np.arange(8, dtype=np.float32).reshape(8, 1) / 8, np.ones((8, 1), np.float32)


def trains(reporters: Sequence[Any]) -> None:
    network = perceptron(1, 2, 1)
    train(network, initialise(network, 1), (X, Y), TrainConfig(epochs=3), reporters=reporters)


def evolves(reporters: Sequence[Any]) -> None:
    Population(EvolutionConfig(population=10), seed=1).evolve(problems.xor(), 3, reporters=reporters)


def weighs(reporters: Sequence[Any]) -> None:
    run = ParetoRun(Population(EvolutionConfig(population=10), seed=1))
    run.evolve(lambda genome, rng: (1.0, -genome.hidden), 3, reporters=reporters)


RUNS = pytest.mark.parametrize("run", [trains, evolves, weighs])


class Diary:
    def __init__(self) -> None:
        self.pages: list[Any] = []

    def start(self, step: int, epoch: int) -> None:
        self.pages.append((step, epoch))

    def report(self, event: Any, /) -> None:
        self.pages.append(event.event)

    def close(self) -> None:
        self.pages.append("closed")


class Least:
    """What has ``report`` alone."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def report(self, event: Any) -> None:
        self.lines.append(str(event))


@RUNS
def test_all_forms_of_reporters_get_the_same_events(run: Callable[[Sequence[Any]], None]) -> None:
    diary, least, lines = Diary(), Least(), []
    run([diary, least, lambda event: lines.append(str(event))])
    assert diary.pages[0] == (0, 0)
    assert diary.pages[-1] == "closed"
    assert len(diary.pages) - 2 == len(lines) > 2
    assert least.lines == lines
    assert not any("(" in line for line in lines)  # text for people, not a repr


@RUNS
def test_the_console_shows_what_is_asked_for(run: Callable[[Sequence[Any]], None]) -> None:
    shown = [io.StringIO() for _ in range(4)]
    run([ConsoleReporter(detail, stream=stream) for detail, stream in enumerate(shown[:3])])
    counts = [len(stream.getvalue().splitlines()) for stream in shown[:3]]
    assert counts[1] - counts[0] == 3  # an epoch or a generation each
    assert counts[2] >= counts[1]
    run([ConsoleReporter(1, seconds=1e9, stream=shown[3])])
    lines, last = shown[1].getvalue().splitlines(), shown[3].getvalue().splitlines()
    assert last == [lines[0], *lines[2:]]  # the second of three came too soon; the third is the last


@pytest.mark.parametrize("wrong", ["history.csv", Diary, 3, None])
@RUNS
def test_what_is_no_reporter_is_named_before_anything_runs(run: Callable[[Sequence[Any]], None], wrong: object) -> None:
    seen: list[Any] = []
    with pytest.raises(SpecError, match=r"reporters\[1\]"):
        run([seen.append, wrong])
    assert seen == []


@RUNS
def test_reporters_are_closed_where_one_fails(run: Callable[[Sequence[Any]], None]) -> None:
    def fails(event: Any) -> None:
        raise OSError("full")

    diary = Diary()
    with pytest.raises(OSError, match="full"):
        run([fails, diary])
    assert diary.pages[-1] == "closed"
    assert len(diary.pages) == 3  # it was told of the event at which the other one failed
