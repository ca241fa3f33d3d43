"""One way to say where to compute: the same names, the same default and the same environment variable everywhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.devices import device
from volumetric.analysis import predict
from volumetric.base.errors import DeviceError
from volumetric.builders import sequential
from volumetric.devices.named_devices import VARIABLE, check_name, explain_auto, open_device
from volumetric.evolution import ParetoRun, Population, activate
from volumetric.evolution.evolution_job import EvolutionJob
from volumetric.network import initialise
from volumetric.run.device import DeviceInfo
from volumetric.train import Method, open_learner, train
from volumetric.train.settings import RunSettings

NETWORK = sequential(2, 3, hidden=(40,))
X = np.eye(2, dtype=np.float32)


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.parametrize(
    "function",
    [
        volumetric.load,
        open_device,
        open_learner,
        train,
        predict,
        Method,
        RunSettings,
        Population.evolve,
        ParetoRun.evolve,
        activate,
        EvolutionJob,
    ],
)
def test_every_default_is_auto(function: Callable[..., Any]) -> None:
    assert inspect.signature(function).parameters["device"].default == "auto"


def test_an_open_device_is_taken_as_it_is() -> None:
    opened = device("cpu")
    assert open_device(opened) is opened


@pytest.mark.parametrize("wrong", [None, 3, ("cpu",)])
def test_what_is_no_device_is_refused_everywhere(wrong: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: open_device(wrong),
        lambda: volumetric.load("nowhere", device=wrong),
        lambda: train(NETWORK, initialise(NETWORK), (X, np.ones((2, 3), np.float32)), device=wrong),
        lambda: predict(NETWORK, initialise(NETWORK), X, device=wrong),
    ]
    for call in calls:
        with pytest.raises(DeviceError, match="a name or an open device"):
            call()


def test_auto_is_what_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "reference")
    assert open_device().info.kind == "reference"
    assert explain_auto([]) == ("reference", f"{VARIABLE} names it")
    assert check_name("cpu") == "cpu"  # what is named in the call counts
    monkeypatch.setenv(VARIABLE, "")
    assert check_name("auto") == "auto"
    monkeypatch.setenv(VARIABLE, "cpuu")
    with pytest.raises(DeviceError, match="VOLUMETRIC_DEVICE: there is no device 'cpuu'") as caught:
        open_device()
    assert "'cpu'" in str(caught.value.hint)


def test_auto_takes_a_gpu_in_software_only_where_it_is_named() -> None:
    software = DeviceInfo(name="gpu:0", kind="gpu", description="llvmpipe", software=True)
    real = DeviceInfo(name="gpu:1", kind="gpu", description="a card")
    assert explain_auto([software])[0] == "cpu"
    assert explain_auto([software, real])[0] == "gpu:1"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_predict_computes_where_it_is_told_to_and_in_which_type(name: str) -> None:
    params = initialise(NETWORK, 1)
    expected = predict(NETWORK, params, X, device="reference")
    np.testing.assert_allclose(predict(NETWORK, params, X, device=device(name)), expected, atol=1e-6)
    schemes = params.schemes()
    rounded = predict(NETWORK, params, X, device=device(name), dtype="int4")
    assert params.schemes() == schemes
    assert 1e-4 < np.abs(rounded - expected).max() < 0.2
    np.testing.assert_allclose(rounded, predict(NETWORK, params, X, device="reference", dtype="int4"), atol=1e-6)
