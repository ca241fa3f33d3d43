"""Numbers of the data that are not finite are named by their place in what was given, not blamed on the rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import DEVICES, device
from volumetric.builders import sequential
from volumetric.network import initialise
from volumetric.train import SGD, DivergedError, StopEvent, TrainConfig, train

NETWORK = sequential(3, 1)
X, Y = np.zeros((50, 3), np.float32), np.zeros((50, 1), np.float32)


def spoilt(array: np.ndarray, *places: tuple[int, ...], value: float = np.nan) -> np.ndarray:
    new = array.copy()
    for place in places:
        new[place] = value
    return new


CASES: dict[str, tuple[Any, Any, str]] = {
    "input": ((spoilt(X, (17, 2)), Y), None, "step 1: inputs[17, 2] is nan"),
    "several": (
        (spoilt(X, (4, 0), (17, 2), value=-np.inf), Y),
        None,
        "inputs[4, 0] is -inf, and 1 more are not finite",
    ),
    "split": ((spoilt(X, *((i, 1) for i in range(40))), Y), 0.2, "inputs[0, 1] is nan, and 39 more"),
    "target": ((X, spoilt(Y, (3, 0))), None, "targets[3, 0] is nan"),
    "mask": ((X, Y, spoilt(Y[:, 0] + 1, (5,))), None, "step 1: mask[5] is nan"),
    "validation": ((X, Y), (spoilt(X, (9, 1)), Y), "validation inputs[9, 1] is nan"),
    "stream": (lambda epoch: [(X, Y), (spoilt(X, (1, 0)), Y)], None, "step 2: in the batch, inputs[1, 0] is nan"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_data_that_are_not_finite_are_named(case: str, name: str) -> None:
    data, validation, message = CASES[case]
    events: list[Any] = []
    where = {"validation": validation, "reporters": [events.append], "device": device(name)}
    with pytest.raises(DivergedError) as caught:
        train(NETWORK, initialise(NETWORK), data, **where)
    assert message in str(caught.value)
    assert caught.value.hint == "remove these samples, or fill in the missing values"
    assert isinstance(events[-1], StopEvent)
    assert events[-1].where == caught.value.in_data


def test_what_is_not_the_fault_of_the_data_keeps_its_advice() -> None:
    config = TrainConfig(optimiser=SGD(lr=1e30), epochs=9)
    with pytest.raises(DivergedError, match="is not finite") as caught:
        train(NETWORK, initialise(NETWORK), (X + 1, Y + 1e9), config, device="reference")
    assert "lower the learning rate" in (caught.value.hint or "")
    assert caught.value.in_data == ""
