"""Where `train` computes: on a device by name, an open one, or with a learner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import Bare, device
from tests.learners import reference_learner
from volumetric.base.errors import DeviceError, SpecError, UnsupportedError
from volumetric.builders import sequential
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.network import initialise
from volumetric.train import TrainConfig, open_learner, train
from volumetric.train.device_learner import DeviceLearner

NETWORK = sequential(2, 1, hidden=(3,))
DATA = (np.eye(2, dtype=np.float32), np.ones((2, 1), np.float32))


def learner_of(**where: Any) -> Any:
    """What a run computes with, as `train` would open it."""
    from volumetric.train.learner import LearnerOptions

    return open_learner(**where)(NETWORK, initialise(NETWORK), LearnerOptions())


def weights(**where: Any) -> np.ndarray:
    return train(NETWORK, initialise(NETWORK), DATA, **where).params["0.0.0.0/weight"].values()


def test_auto_is_what_the_environment_names(monkeypatch):
    monkeypatch.setenv("VOLUMETRIC_DEVICE", "cpu")
    assert isinstance(learner_of(), DeviceLearner)
    np.testing.assert_array_equal(weights(), weights(device=device("cpu")))
    monkeypatch.setenv("VOLUMETRIC_DEVICE", "reference")
    np.testing.assert_array_equal(weights(), weights(device="reference"))
    np.testing.assert_array_equal(weights(), weights(device=ReferenceDevice()))


def test_a_device_by_name_or_open_or_a_learner():
    expected = weights(learner=reference_learner)
    np.testing.assert_array_equal(weights(device="reference"), expected)
    np.testing.assert_allclose(weights(device=device("gpu")), expected, atol=1e-5)
    with pytest.raises(SpecError, match="exclude each other"):
        weights(device="cpu", learner=reference_learner)
    with pytest.raises(DeviceError, match="there is no device 'cuda'"):
        weights(device="cuda")
    with pytest.raises(UnsupportedError, match="'bare' does not support training"):
        weights(device=Bare())


def test_the_weights_in_another_type_than_the_settings_say():
    quantised = train(NETWORK, initialise(NETWORK), DATA, TrainConfig(dtype="int4"), device="reference", dtype="int8")
    assert str(quantised.params["0.0.0.0/weight"].scheme) == "int8:g32"
