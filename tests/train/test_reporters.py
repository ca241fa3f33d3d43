"""Who is told of a run: functions and objects alike, and what is neither is refused before anything is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.builders import sequential
from volumetric.network import initialise
from volumetric.train import EpochEvent, JsonlReporter, StepEvent, StopEvent, train

NETWORK = sequential(2, 1)
DATA = (np.ones((2, 2), np.float32), np.ones((2, 1), np.float32))


def trained(reporters: Any) -> None:
    train(NETWORK, initialise(NETWORK), DATA, reporters=reporters)


class OnlyReport:
    def __init__(self) -> None:
        self.seen: list[type] = []

    def report(self, event: object) -> None:
        self.seen.append(type(event))


class Whole(OnlyReport):
    def start(self, step: int, epoch: int) -> None:
        self.began = (step, epoch)

    def close(self) -> None:
        self.seen.append(type(None))


def test_functions_and_objects_get_the_same_events():
    events: list[object] = []
    part, whole = OnlyReport(), Whole()
    trained([events.append, part, whole])
    assert part.seen == [type(event) for event in events] == [StepEvent, EpochEvent, StopEvent]
    assert whole.began == (0, 0)
    assert whole.seen == [*part.seen, type(None)]


def test_a_reporter_is_closed_where_another_one_fails():
    whole = Whole()
    with pytest.raises(ZeroDivisionError):
        trained([lambda event: 1 / 0, whole])
    assert whole.seen == [StepEvent, type(None)]


@pytest.mark.parametrize(
    ("reporters", "message", "hint"),
    [
        ([object()], r"reporters\[0\] is of type object, which cannot take events", "report"),
        ([print, "history.jsonl"], r"reporters\[1\] is 'history.jsonl', which", "report"),
        ([JsonlReporter], "is the class JsonlReporter", r"JsonlReporter\(…\)"),
        (print, "reporters is", r"pass a list"),
        (Whole(), "reporters is of type Whole", r"pass a list"),
        (None, "reporters is None", "pass a list"),
    ],
    ids=["object", "text", "class", "function", "one", "none"],
)
def test_what_is_no_reporter_is_refused_with_advice(reporters: Any, message: str, hint: str):
    with pytest.raises(SpecError, match=message) as caught:
        trained(reporters)
    assert caught.value.hint
    assert hint.replace("\\", "") in caught.value.hint
