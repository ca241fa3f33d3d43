"""Standardisation that goes into the weights: the same outputs of inputs as they are, or a reason why not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric import Coord, Grid, Link, Network, initialise
from volumetric.analysis import predict
from volumetric.analysis.standardise import Standardisation
from volumetric.base._typing import Array
from volumetric.base.errors import UnsupportedError
from volumetric.dtypes import Scheme
from volumetric.layers import LSTM, Conv1d, Conv2d, Dense, Flatten, LayerSpec, Reshape, Residual, RMSNorm, Sequential
from volumetric.loaders import LoadedModel, open_model, save_native
from volumetric.loaders.convert_model import convert_model, save_model
from volumetric.loaders.folded_inputs import fold_inputs
from volumetric.loaders.native_facts import NativeFacts

DENSE = Dense(in_features=12, out_features=5, bias=False, activation="tanh")
IMAGES = Conv2d(in_channels=4, out_channels=6, kernel_size=2, groups=2, bias=False)


def statistics(count: int, seed: int = 3) -> Standardisation:
    random = np.random.default_rng(seed)
    return Standardisation(mean=tuple(random.normal(size=count) * 9), deviation=tuple(random.uniform(0.1, 9, count)))


def constant(channels: int, places: int, *, mean: bool = True) -> Standardisation:
    """Statistics of images that are the same at all places."""
    one = statistics(channels)
    means = np.repeat(one.mean, places) * mean
    return Standardisation(mean=tuple(means), deviation=tuple(np.repeat(one.deviation, places)))


def model(inputs: Standardisation, shape: tuple[int, ...], *layers: LayerSpec, **more: Any) -> LoadedModel:
    stack = {Coord(z): spec for z, spec in enumerate(layers)}
    network = Network(grid=Grid(len(layers)), layers=stack, input_shape=shape, input_dtype="float32", **more)
    params = initialise(network, seed=7)
    for key, store in params.items():
        if key.endswith("bias"):
            store.assign(np.random.default_rng(1).normal(size=store.shape).astype(np.float32))
    opened = {"tokenizer": None, "chat_template": None, "generation": None, "context_length": 0, "path": Path("here")}
    return LoadedModel(name="it", network=network, params=params, inputs=inputs, **opened)  # pyright: ignore[reportArgumentType]


def outputs(of: LoadedModel, x: Array) -> Array:
    given = x if of.inputs is None else of.inputs.apply(x)
    return predict(of.network, of.params, given.astype(np.float32), device="reference")


WORKS: dict[str, tuple[Standardisation, tuple[int, ...], tuple[LayerSpec, ...]]] = {
    "dense without a bias": (statistics(12), (12,), (DENSE, Dense(in_features=5, out_features=2))),
    "dense with a bias": (statistics(12), (12,), (dataclasses.replace(DENSE, bias=True),)),
    "reshaped": (statistics(12), (12,), (Reshape(shape=(3, 4)), Flatten(), DENSE)),
    "rows of features": (statistics(4), (3, 4), (Dense(in_features=4, out_features=2),)),
    "in a sequential": (statistics(12), (12,), (Sequential(layers=(Flatten(), DENSE, Residual(source="#1"))),)),
    "images": (constant(4, 9), (36,), (Reshape(shape=(4, 3, 3)), IMAGES, Flatten())),
    "images with zeros around": (
        constant(4, 9, mean=False),
        (4, 3, 3),
        (dataclasses.replace(IMAGES, padding=1, bias=True), Flatten()),
    ),
    "sequences": (constant(2, 6), (2, 6), (Conv1d(in_channels=2, out_channels=3, kernel_size=3), Flatten())),
}


@pytest.mark.parametrize("name", WORKS)
def test_outputs_are_those_of_the_standardised_inputs(name: str) -> None:
    inputs, shape, layers = WORKS[name]
    given = model(inputs, shape, *layers)
    made = fold_inputs(given)
    assert made.inputs is None
    x = np.random.default_rng(5).normal(size=(7, *shape)) * 9
    np.testing.assert_allclose(outputs(made, x), outputs(given, x), rtol=1e-5, atol=1e-5)
    assert fold_inputs(made) is made


def test_packed_weights_become_float32_where_they_take_the_statistics() -> None:
    given = model(
        statistics(12), (12,), DENSE, Dense(in_features=5, out_features=32), Dense(in_features=32, out_features=2)
    )
    for store in (given.params[key] for key in given.params if key.endswith("weight")):
        store.morph(Scheme.parse("int4:g32"))
        store.drop_master()
    made = fold_inputs(given)
    schemes = [str(made.params[f"{z}.0.0.0/weight"].scheme) for z in range(3)]
    assert schemes == ["float32", "int4:g32", "int4:g32"]
    x = np.random.default_rng(5).normal(size=(7, 12)) * 9
    np.testing.assert_allclose(outputs(made, x), outputs(given, x), rtol=1e-5, atol=1e-5)


def test_every_layer_that_reads_the_input_takes_them() -> None:
    link = Link(kind="activation", source=Coord(0), target=Coord(2))
    layers = (Reshape(shape=(12,)), DENSE, Dense(in_features=12, out_features=3))
    given = model(statistics(12), (12,), *layers, links=(link,), outputs={"other": Coord(1)})
    made, x = fold_inputs(given), np.random.default_rng(5).normal(size=(7, 12)) * 9
    np.testing.assert_allclose(outputs(made, x), outputs(given, x), rtol=1e-5, atol=1e-5)
    assert all(made.network.layers[Coord(z)].bias for z in (1, 2))  # pyright: ignore[reportAttributeAccessIssue]


NEVER: dict[str, tuple[Standardisation, tuple[int, ...], tuple[LayerSpec, ...], dict[str, Any], str]] = {
    "another layer": (statistics(12), (3, 12), (LSTM(input_size=12, hidden_size=2),), {}, r"lstm at 0\.0\.0\.0 reads"),
    "a norm": (statistics(12), (12,), (Sequential(layers=(RMSNorm(num_features=12),)),), {}, "layer 0 of sequential"),
    "zeros around": (
        constant(4, 9),
        (4, 3, 3),
        (dataclasses.replace(IMAGES, padding=1),),
        {},
        "pads with zeros",
    ),
    "places apart": (statistics(36), (4, 3, 3), (IMAGES,), {}, "between positions"),
    "added": (
        statistics(12),
        (12,),
        (DENSE, Dense(in_features=5, out_features=12), Residual(source="input")),
        {},
        "adds",
    ),
    "handed out": (statistics(12), (12,), (Flatten(), DENSE), {"outputs": {"x": Coord(0)}}, "output 'x'"),
    "earlier rows": (
        statistics(12),
        (12,),
        (Flatten(), DENSE, Dense(in_features=12, out_features=2)),
        {"links": (Link(kind="activation", source=Coord(0), target=Coord(2), delay=1),)},
        "earlier rows",
    ),
    "shared": (
        statistics(12),
        (12,),
        (Dense(in_features=12, out_features=12), Dense(in_features=12, out_features=12)),
        {"links": (Link(kind="shared", source=Coord(0), target=Coord(1)),)},
        "shares its weights",
    ),
    "far from 0": (
        Standardisation(mean=(0.0,) * 11 + (1e6,), deviation=(1.0,) * 12),
        (12,),
        (DENSE,),
        {},
        r"feature \[11\]",
    ),
}


@pytest.mark.parametrize("name", NEVER)
def test_what_cannot_take_them_is_named(name: str) -> None:
    inputs, shape, layers, more, message = NEVER[name]
    with pytest.raises(UnsupportedError, match=message) as caught:
        fold_inputs(model(inputs, shape, *layers, **more))
    assert "native" in str(caught.value.hint)


def test_a_model_with_classes_becomes_json(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = model(statistics(12), (12,), DENSE, Dense(in_features=5, out_features=2))
    facts = NativeFacts(inputs=given.inputs, classes=("no", "yes"))
    save_native(tmp_path / "m", given.network, given.params, facts=facts)
    convert_model(tmp_path / "m", tmp_path / "m.json")
    assert "names of the 2 classes" in caplog.text
    x = np.random.default_rng(5).normal(size=(7, 12)) * 9
    made = open_model(tmp_path / "m.json")
    np.testing.assert_allclose(outputs(made, x), outputs(given, x), rtol=1e-5, atol=1e-5)
    with pytest.raises(UnsupportedError, match="no family"):  # the true reason: the file is of a language model
        save_model(tmp_path / "m.gguf", open_model(tmp_path / "m"), "gguf")
