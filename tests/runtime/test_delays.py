"""Links with a delay: loops that run row by row, against the plain recurrence that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.layers.test_vjp import TOLERANCE, differences
from tests.oracles.network import NumpyNetwork
from tests.runtime.test_reference import chain
from volumetric.analysis import predict
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.devices.reference_device import ReferenceDevice, ReferenceExecutable
from volumetric.evolution.grids.grid_genome import outputs_of
from volumetric.layers import (
    LSTM,
    BatchNorm1d,
    Conv2d,
    Dense,
    Embedding,
    MultiHeadAttention,
    Softmax,
)
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Link
from volumetric.run import lower
from volumetric.train import TrainConfig, train

WIDTH = 3


def dense(wide: int = WIDTH) -> Dense:
    return Dense(in_features=WIDTH, out_features=wide, activation="tanh")


def delayed(source: int, target: int, rows: int = 1, *, replace: bool = False) -> Link:
    combine = "replace" if replace else "add"
    return Link(kind="activation", source=Coord(source), target=Coord(target), combine=combine, delay=rows)


def compiled(network: Network, dtype: type = np.float64) -> ReferenceExecutable:
    return ReferenceDevice(dtype).compile(lower(network), initialise(network, seed=3))


def rows(count: int, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, width)).astype(np.float32)


def affine(executable: ReferenceExecutable, z: int, x: np.ndarray) -> np.ndarray:
    weights = executable.weights
    return np.tanh(x @ weights[f"{z}.0.0.0/weight"].T + weights[f"{z}.0.0.0/bias"])


LOOPS = {
    "self": chain((WIDTH,), dense(), links=(delayed(0, 0),)),
    "back": chain((WIDTH,), dense(), dense(), dense(), links=(delayed(2, 0, 3), delayed(1, 0))),
    "ahead": chain((WIDTH,), dense(), dense(), dense(), links=(delayed(0, 2, 2),)),
    "only": chain((WIDTH,), dense(), dense(), links=(delayed(1, 0, 2, replace=True), delayed(0, 1, 1))),
    "states": chain(
        (WIDTH,),
        LSTM(input_size=WIDTH, hidden_size=WIDTH),
        MultiHeadAttention(embed_dim=WIDTH, num_heads=1),
        dense(),
        links=(delayed(2, 1, 2), delayed(0, 2, 5)),
    ),
}


def test_a_layer_that_reads_itself_is_a_recurrent_cell() -> None:
    executable = compiled(LOOPS["self"])
    x, h = rows(6), np.zeros(WIDTH)
    for row, got in zip(x, executable.forward(executable.new_state(), x, last_only=False), strict=True):
        h = affine(executable, 0, row + h)
        np.testing.assert_allclose(got, h, rtol=0, atol=1e-6)


def test_several_links_of_several_delays_are_summed() -> None:
    executable = compiled(LOOPS["back"])
    x, first, last = rows(8), [np.zeros(WIDTH)], [np.zeros(WIDTH)] * 3
    got = executable.forward(executable.new_state(), x, last_only=False)
    for row, y in zip(x, got, strict=True):
        second = affine(executable, 1, affine(executable, 0, row + last[-3] + first[-1]))
        first.append(second)
        last.append(affine(executable, 2, second))
        np.testing.assert_allclose(y, last[-1], rtol=0, atol=1e-6)
    assert executable.plan.max_rows == 1
    assert {key: spec.shape for key, spec in executable.plan.states.items()} == {
        "2.0.0.0/delay3": (3, WIDTH),
        "1.0.0.0/delay1": (1, WIDTH),
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", LOOPS)
@settings(max_examples=6, deadline=None)
@given(cut=st.integers(1, 8), back=st.integers(0, 9))
def test_a_sequence_may_be_cut_anywhere(name: str, cut: int, back: int) -> None:
    executable, x = compiled(LOOPS[name]), rows(9)
    whole = executable.forward(executable.new_state(), x, last_only=False)
    state = executable.new_state()
    parts = [executable.forward(state, x[:cut], last_only=False)]
    fork, again = state.fork(), executable.restore(state.save())
    parts += [executable.forward(state, row[None]) for row in x[cut:]]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-6)
    for other in (fork, again):
        np.testing.assert_allclose(executable.forward(other, x[cut:]), whole[-1:], rtol=0, atol=1e-6)
    state.reset()
    executable.forward(state, x[back : back + 1] if back < 9 else x[:1])
    state.trim(0)
    np.testing.assert_allclose(executable.forward(state, x, last_only=False), whole, rtol=0, atol=1e-6)


def test_sequences_of_a_batch_start_from_zeros() -> None:
    network = LOOPS["back"]
    params, x = initialise(network, seed=3), np.stack([rows(5), rows(5)])
    alone = predict(network, params, rows(5), device="reference")
    np.testing.assert_array_equal(predict(network, params, x, device="reference"), np.stack([alone, alone]))
    np.testing.assert_allclose(outputs_of(network, params, x), np.stack([alone, alone]), rtol=0, atol=1e-6)
    # Rows without an axis of samples are one sequence, however many there are.
    longer = predict(network, params, rows(9), device="reference", batch_size=4)
    np.testing.assert_array_equal(longer[:5], alone)


def test_a_delay_without_a_loop_has_a_gradient() -> None:
    executable = NumpyNetwork.of(LOOPS["ahead"], initialise(LOOPS["ahead"], seed=3))
    assert executable.plan.max_rows is None
    x = np.random.default_rng(0).standard_normal((5, WIDTH))
    values, tape = executable.trace(x)
    gy = np.random.default_rng(1).standard_normal((5, WIDTH))
    gx, params = executable.vjp(values, tape, gy)

    def loss() -> float:
        return float((executable.trace(x)[0][executable.plan.outputs["output"]] * gy).sum())

    for got, at in [(gx["input"], x), *((params[key], executable.weights[key]) for key in params)]:
        want = differences(loss, at)
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * max(np.abs(want).max(), 1e-3))


def test_what_cannot_be_done_yet_names_the_link() -> None:
    network = LOOPS["self"]
    params = initialise(network)
    x = rows(4)
    with pytest.raises(UnsupportedError, match=r"cannot train through the loop that the link 0\.0\.0\.0 → 0\.0\.0\.0"):
        train(network, params, (x[None], x[None]), TrainConfig(epochs=1), device="reference")


def test_loops_without_a_delay_are_built_but_not_run() -> None:
    network = chain((WIDTH,), dense(), dense(), dense(), links=(delayed(2, 1, 0),))
    assert Network.from_json(network.to_json()) == network
    with pytest.raises(SpecError, match=r"closes a loop: 1\.0\.0\.0 → 2\.0\.0\.0 → 1\.0\.0\.0") as caught:
        lower(network)
    assert "delay" in str(caught.value.hint)
    with pytest.raises(SpecError, match=r"closes a loop: 0\.0\.0\.0 → 0\.0\.0\.0"):
        lower(chain((WIDTH,), dense(), links=(delayed(0, 0, 0),)))


def test_shapes_go_round() -> None:
    """What a layer reads from later ones alone is found from their weights."""
    wide = Dense(in_features=7, out_features=7)
    network = chain(
        (WIDTH,),
        Softmax(),
        wide,
        Softmax(),
        Dense(in_features=7, out_features=2),
        links=(delayed(2, 0, 1, replace=True),),
    )
    assert [shape[-1] for shape in network.shapes.values()] == [7, 7, 7, 2]
    executable = compiled(network)
    assert executable.forward(executable.new_state(), rows(3), last_only=False).shape == (3, 2)
    with pytest.raises(ShapeError, match=r"no layer determines the shape in the loop 0\.0\.0\.0 → 1\.0\.0\.0"):
        chain((WIDTH,), Softmax(), Softmax(), links=(delayed(1, 0, 1, replace=True),))
    with pytest.raises(ShapeError, match=r"softmax at 0\.0\.0\.0.*cannot add the output of 1\.0\.0\.0 1 row earlier"):
        chain((WIDTH,), Softmax(), Dense(in_features=WIDTH, out_features=5), links=(delayed(1, 0),))


def test_rows_of_any_shape_are_steps_in_time() -> None:
    conv = Conv2d(in_channels=1, out_channels=1, kernel_size=3, padding=1)
    executable = compiled(chain((1, 3, 3), conv, conv, links=(delayed(1, 0),)))
    x = np.random.default_rng(0).standard_normal((4, 1, 3, 3)).astype(np.float32)
    whole, state = executable.forward(executable.new_state(), x, last_only=False), executable.new_state()
    parts = [executable.forward(state, x[:3], last_only=False), executable.forward(state, x[3:])]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-6)
    fresh = executable.forward(executable.new_state(), x[1:2])
    assert np.abs(fresh - whole[1]).max() > 1e-3


def test_layers_that_look_ahead_have_no_place_in_a_loop() -> None:
    for layer in (MultiHeadAttention(embed_dim=WIDTH, num_heads=1, causal=False), BatchNorm1d(num_features=WIDTH)):
        network = chain((WIDTH,), layer, dense(), links=(delayed(1, 0),))
        if layer.two_way:
            with pytest.raises(SpecError, match=r"reads later rows .* the link 1\.0\.0\.0 → 0\.0\.0\.0"):
                lower(network)
        else:  # running statistics at inference
            assert lower(network).max_rows == 1


def test_ill_formed_delays_are_refused() -> None:
    for wrong in (-1, True, 1.0):
        with pytest.raises(SpecError, match="delay must be 0 or more rows"):
            Link(kind="activation", source=Coord(0), target=Coord(1), delay=wrong)  # pyright: ignore[reportArgumentType]  (the point)
    with pytest.raises(SpecError, match="shared weights cannot have a delay"):
        Link(kind="shared", source=Coord(0), target=Coord(1), delay=1)
    text = LOOPS["self"].to_json()
    assert Network.from_json(text) == LOOPS["self"]
    with pytest.raises(SpecError, match=r"links\[0\].delay"):
        Network.from_json(text.replace('"delay": 1', '"delay": "1"'))


def test_ids_may_come_back_late() -> None:
    """A layer that is switched off passes token ids on."""
    network = Network(
        grid=LOOPS["ahead"].grid,
        layers={Coord(0): Softmax(), Coord(1): Embedding(num_embeddings=4, embedding_dim=2)},
        links=(delayed(0, 1, 1, replace=True),),
        disabled=frozenset({Coord(0)}),
    )
    executable = compiled(network)
    table = executable.weights["1.0.0.0/weight"]
    got = executable.forward(executable.new_state(), np.array([3, 1, 2]), last_only=False)
    np.testing.assert_allclose(got, table[[0, 3, 1]], rtol=0, atol=1e-6)
