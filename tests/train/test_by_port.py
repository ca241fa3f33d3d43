"""Samples by port of a program or a fabric learn what they do as rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples.programs import program
from volumetric.base.errors import ShapeError, SpecError
from volumetric.network import Network, initialise
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.ports import In, Out, Signal
from volumetric.program.layer.region import Region
from volumetric.train import MSE, Backprop, Batch, DivergedError, TrainConfig, evaluate, train
from volumetric.train.data import arrays_of
from volumetric.train.settings import DataSettings, RunSettings
from volumetric.train.sources import open_samples
from volumetric.train.stream_windows import RESETS

RNG = np.random.default_rng(4)
LEAD = (6, 3)


def network() -> Network:
    regions = {"eye": Region(((0, 1), (0, 2))), "goal": Region(((1, 2), (0, 2))), "act": Region(((2, 3), (0, 2)))}
    edges = (Edge("eye", "act", when="on(now)"), Edge("goal", "act"))
    ports = {
        "pixels": In("eye", 3),
        "wish": In("goal", 2),
        "now": Signal(),
        "motor": Out("act", 2),
        "value": Out("act", 1),
    }
    return program(regions, edges, ports, (3, 2)).program.network()


def arrays(**widths: int) -> dict[str, np.ndarray]:
    return {name: RNG.standard_normal((*LEAD, width)).astype(np.float32) for name, width in widths.items()}


INPUTS, TARGETS = arrays(pixels=3, wish=2, now=1), arrays(motor=2, value=1)
ROWS, WANTED = (np.concatenate([*of.values()], -1) for of in (INPUTS, TARGETS))


def learned(data: Any, **more: Any) -> dict[str, np.ndarray]:
    of = network()
    config = TrainConfig(loss=MSE(), epochs=2, **more)
    result = train(of, initialise(of, seed=1), data, config, device="reference")
    return {key: store.values() for key, store in result.params.items()}


def check_equal(found: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    for key, value in want.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def weights(**by: float) -> np.ndarray:
    """Weights of all terms, by the columns of outputs."""
    columns = [np.full((*LEAD, TARGETS[name].shape[-1]), weight, np.float32) for name, weight in by.items()]
    return np.concatenate(columns, -1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("inputs", "targets", "mask", "as_rows"),
    [
        (INPUTS, TARGETS, None, None),
        (dict(reversed(INPUTS.items())), WANTED, None, None),
        (ROWS, TARGETS, None, None),
        ({"input": ROWS}, {"output": WANTED}, None, None),
        ({**INPUTS, "now": INPUTS["now"][..., 0]}, {**TARGETS, "value": TARGETS["value"][..., 0]}, None, None),
        (INPUTS, {"motor": TARGETS["motor"]}, None, weights(motor=1, value=0)),
        (INPUTS, TARGETS, {"value": np.full(LEAD, 0.5)}, weights(motor=1, value=0.5)),
        (INPUTS, {"value": TARGETS["value"]}, np.full(LEAD[:1], 2.0), weights(motor=0, value=2)),
    ],
)
def test_arrays_by_port_are_rows(inputs: Any, targets: Any, mask: Any, as_rows: Any) -> None:
    check_equal(learned((inputs, targets, mask)), learned((ROWS, WANTED, as_rows)))


@pytest.mark.thorough
def test_batches_validation_resets_and_evaluation_are_by_port_too() -> None:
    resets = np.zeros(LEAD, np.float32)
    resets[:, 1] = 1
    carried = {"mode": Backprop(carry=True)}
    found = learned(lambda epoch: [Batch({**INPUTS, RESETS: resets}, TARGETS)], **carried)
    check_equal(found, learned(lambda epoch: [Batch({"input": ROWS, RESETS: resets}, WANTED)], **carried))

    def batches(epoch: int) -> Iterator[tuple[Any, Any]]:
        yield INPUTS, TARGETS

    check_equal(learned(batches), learned(lambda epoch: [(ROWS, WANTED)]))
    of = network()
    params = initialise(of, seed=1)
    told = [evaluate(of, params, data).loss for data in ((INPUTS, TARGETS), (ROWS, WANTED))]
    assert told[0] == told[1]
    result = train(of, params, (INPUTS, TARGETS), TrainConfig(loss=MSE()), validation=(INPUTS, TARGETS))
    assert result.history[-1].validation_loss == pytest.approx(evaluate(of, result.params, (ROWS, WANTED)).loss)


@pytest.mark.parametrize(
    ("data", "error", "told"),
    [
        (({"pixels": INPUTS["pixels"]}, WANTED), ShapeError, "input 'wish' is missing"),
        (({**INPUTS, "sound": ROWS}, WANTED), SpecError, "no input 'sound'"),
        (({**INPUTS, "wish": ROWS}, WANTED), ShapeError, r"input 'wish': expected \[6, 3, 2\], got \[6, 3, 6\]"),
        (({**INPUTS, "wish": INPUTS["wish"][:, :2]}, WANTED), ShapeError, r"input 'wish': expected \[6, 3, 2\]"),
        ((INPUTS, {**TARGETS, "sound": ROWS}), SpecError, "no output 'sound'"),
        (
            (INPUTS, {"motor": TARGETS["motor"]}, {"value": WANTED}),
            SpecError,
            "the mask of output 'value' has no targets",
        ),
        ((INPUTS, TARGETS, {"motor": np.ones((6, 3, 7))}), ShapeError, "a mask of shape"),
    ],
)
def test_what_does_not_go_together_is_named(data: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        learned(data)


def spoilt(of: dict[str, np.ndarray], name: str, *place: int) -> dict[str, np.ndarray]:
    """One number of one port is NaN."""
    array = of[name].copy()
    array[place] = np.nan
    return {**of, name: array}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("inputs", "targets", "mask", "told"),
    [
        (spoilt(INPUTS, "wish", 4, 2, 1), TARGETS, None, "inputs.wish[4, 2, 1] is nan"),
        (INPUTS, spoilt(TARGETS, "value", 3, 1, 0), None, "targets.value[3, 1, 0] is nan"),
        (INPUTS, TARGETS, spoilt({"value": np.ones(LEAD)}, "value", 2, 1), "mask.value[2, 1, 0] is nan"),
        (spoilt({"input": ROWS}, "input", 4, 2, 4), TARGETS, None, "inputs[4, 2, 4] is nan"),
    ],
)
@pytest.mark.parametrize("way", ["arrays", "validation", "file", "batches"])
def test_numbers_that_are_not_finite_are_told_by_port(
    tmp_path: Path, way: str, inputs: Any, targets: Any, mask: Any, told: str
) -> None:
    of, config = network(), TrainConfig(loss=MSE())
    given: dict[str, Any] = {"device": "reference"}
    data: Any = (inputs, targets, mask)
    if way == "validation":
        data, given["validation"], told = (INPUTS, TARGETS), data, f"validation {told}"
    elif way == "batches":
        data, told = (lambda _, batch=data: [batch]), f"in the batch, {told}"
    elif way == "file":
        np.savez(tmp_path / "samples.npz", allow_pickle=False, **arrays_of(inputs, targets, mask))
        config = RunSettings(data=DataSettings(npz=str(tmp_path / "samples.npz")), train=config)
        data, config = open_samples(config, network=of).data, config.train
    with pytest.raises(DivergedError) as caught:
        train(of, initialise(of, seed=1), data, config, **given)
    assert caught.value.in_data.startswith(told)
