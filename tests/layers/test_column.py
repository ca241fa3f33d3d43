"""The balance of columns: what it adds to the loss, its gradient, and that devices learn by it alike."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import device
from tests.layers.test_vjp import arrays, differences
from tests.oracles import oracle
from tests.oracles.learner import NumpyLearner
from tests.oracles.training import Training
from volumetric.base.errors import SpecError
from volumetric.builders import chain
from volumetric.layers import CausalConv1d, Column, Dense
from volumetric.network.weight_store import Params, WeightStore
from volumetric.train import SGD, Batch, LearnerOptions
from volumetric.train.device_learner import learner_on

EXPERTS = (CausalConv1d(channels=3, kernel_size=2), Dense(in_features=3, out_features=3))
SPEC = Column(embed_dim=3, experts=EXPERTS, refine=2.0, balance=0.7)


@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 3)])
def test_the_gradient_is_that_of_loss_and_balance(shape: tuple[int, ...]) -> None:
    p, x = arrays(SPEC, shape, seed=3)
    gy = np.random.default_rng(1).standard_normal(shape)

    def loss() -> float:
        training = Training(path="layer")
        y, _ = oracle(SPEC).train_forward(p, x, training=training)
        return float((y * gy).sum() + training.penalties["layer"])

    _, saved = oracle(SPEC).train_forward(p, x, training=Training(path="layer"))
    grads = oracle(SPEC).vjp(p, saved, gy)
    assert grads.inputs[0] is not None
    for name, got, at in (("prior.context", grads.params["prior.context"], p["prior.context"]),
                          ("refine.keys", grads.params["refine.keys"], p["refine.keys"]),
                          ("input", grads.inputs[0], x)):  # fmt: skip
        want = differences(loss, at)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * max(1, np.abs(want).max()), err_msg=name)
    mean = saved["a"].mean(-2)
    training = Training(path="layer")
    oracle(SPEC).train_forward(p, x, training=training)
    assert training.penalties["layer"] == pytest.approx(0.7 * 2 * (mean**2).sum() * shape[-2])


def test_devices_learn_by_it_as_the_layers_code_does() -> None:
    network = chain([SPEC], (3,))
    rng = np.random.default_rng(0)
    inputs, targets = (rng.standard_normal((2, 4, 3)).astype(np.float32) for _ in range(2))
    batch = Batch(inputs, targets)
    plain = chain([Column(embed_dim=3, experts=EXPERTS, refine=2.0)], (3,))
    p, _ = arrays(SPEC, (4, 3), seed=5)
    params = Params({f"0.0.0.0/{name}": WeightStore.from_array(w.astype(np.float32)) for name, w in p.items()})
    given = LearnerOptions(optimiser=SGD())
    first, second, without = (
        NumpyLearner(network, params, given),
        learner_on(device("cpu"))(network, params, given),  # pyright: ignore[reportArgumentType]  (it has graphs)
        NumpyLearner(plain, params, given),
    )
    reports = [of.step([batch], rate=0.5) for of in (first, second, without)]
    assert reports[0].tally.total == pytest.approx(reports[2].tally.total)  # it is not told
    key = "0.0.0.0/refine.keys"
    for name, store in first.params().items():
        np.testing.assert_allclose(second.params()[name].values(), store.values(), rtol=0, atol=2e-6, err_msg=name)
    assert np.abs(first.params()[key].values() - without.params()[key].values()).max() > 5e-5
    with pytest.raises(SpecError, match="balance must be a number of at least 0"):
        Column(embed_dim=3, experts=EXPERTS, balance=-0.1)
