"""Further inputs and outputs of a network: what is checked, what files hold, and what changes of structure keep."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import numpy as np
import pytest

from volumetric.analysis import predict
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.builders import around, as_layer, chain, fold_batchnorm
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.evolution.grids.grid_genome import GridGenome
from volumetric.evolution.grids.grid_mutation import toggle, with_structure
from volumetric.layers import BatchNorm1d, Dense, Embedding, Reshape, Residual
from volumetric.loaders.loom_write import loom_text
from volumetric.network import Network, initialise
from volumetric.network.blueprint import blueprint
from volumetric.network.grid import Coord, Grid, Link, Port
from volumetric.run.device import SequenceRows
from volumetric.run.lower import lower

WIDTH = 6


def two_ends(**more: object) -> Network:
    """Tokens and types, embedded and added up."""
    given = {
        "grid": Grid(3),
        "layers": {
            Coord(0): Embedding(num_embeddings=11, embedding_dim=WIDTH),
            Coord(1): Embedding(num_embeddings=3, embedding_dim=WIDTH),
            Coord(2): Dense(in_features=WIDTH, out_features=2),
        },
        "links": (Link(kind="activation", source=Coord(0), target=Coord(2), combine="add"),),
        "inputs": {"types": Port(coord=Coord(1), dtype="int32")},
        "outputs": {"types_embedded": Coord(1)},
    }
    return Network(**{**given, **more})  # pyright: ignore[reportArgumentType]  (fields of Network)


def test_files_hold_names_and_places() -> None:
    network = two_ends()
    text = network.to_json()
    assert Network.from_json(text) == network
    assert Network.from_json(text).to_json() == text
    found = json.loads(text)
    assert found["inputs"] == {"types": {"coord": "1.0.0.0", "shape": [], "dtype": "int32", "combine": "replace"}}
    assert found["outputs"] == {"types_embedded": "1.0.0.0"}
    assert dataclasses.replace(network, outputs={}) != network
    plain = json.loads(two_ends(inputs={}, outputs={}, links=(), layers={Coord(0): Reshape(shape=(3,))},
                                input_shape=(3,), input_dtype="float32").to_json())  # fmt: skip
    assert not {"inputs", "outputs"} & plain.keys()


@pytest.mark.parametrize(
    ("place", "value", "match"),
    [
        (("inputs", "types", "colour"), 1, r"\$\.inputs\.types: unknown key 'colour'"),
        (("inputs", "types", "dtype"), "int8", r"\$\.inputs\.types\.dtype"),
        (("inputs", "types", "shape"), [0], "cannot have the shape"),
        (("inputs", "types", "coord"), "9.0.0.0", "there is no layer at 9.0.0.0"),
        (("inputs", "types", "combine"), "mul", r"\$\.inputs\.types\.combine"),
        (("outputs", "types_embedded"), "0.0.0.4", "output 'types_embedded': there is no layer at 0.0.0.4"),
        (("outputs",), {"a b": "0.0.0.0"}, "an output cannot be called 'a b'"),
        (("inputs",), {"": {"coord": "1.0.0.0"}}, "an input cannot be called ''"),
        (("inputs",), {"input": {"coord": "1.0.0.0"}}, "'input' is the input of the first layer"),
        (("inputs",), {"types": {}}, "an input needs a coord"),
        (("inputs",), [], r"\$\.inputs"),
    ],
)
def test_damaged_files_are_refused(place: tuple[str, ...], value: object, match: str) -> None:
    data = json.loads(two_ends().to_json())
    at = data
    for name in place[:-1]:
        at = at[name]
    at[place[-1]] = value
    with pytest.raises(SpecError, match=match):
        Network.from_json(json.dumps(data))


def test_what_cannot_be_is_an_error_that_names_it() -> None:
    with pytest.raises(ShapeError, match=r"dense at 2\.0\.0\.0 .*the network's input 'more'.*cannot add"):
        two_ends(inputs={**two_ends().inputs, "more": Port(coord=Coord(2), shape=(5,), combine="add")})
    with pytest.raises(ShapeError, match="cannot add to the network's input: it is ids"):
        two_ends(inputs={"more": Port(coord=Coord(0), dtype="int32", combine="add"), **two_ends().inputs})
    with pytest.raises(SpecError, match=r"there is no layer at 1\.0\.0\.0") as caught:
        two_ends().with_layer(Coord(1), None)
    assert "layers are at 0.0.0.0" in (caught.value.hint or "")
    for port in ({"dtype": "float64"}, {"combine": "mul"}, {"shape": (0,)}, {"shape": (True,)}):
        with pytest.raises(SpecError):
            Port(coord=Coord(0), **port)  # pyright: ignore[reportArgumentType]


def test_the_output_may_be_that_of_another_layer() -> None:
    network = two_ends(outputs={"output": Coord(0), "logits": Coord(2)})
    assert network.taps == {"output": Coord(0), "logits": Coord(2)}
    assert two_ends().taps == {"output": Coord(2), "types_embedded": Coord(1)}
    grown = two_ends(grid=Grid(4)).with_layer(Coord(3), Dense(in_features=2, out_features=1))
    assert grown.taps["output"] == Coord(3)
    executable = ReferenceDevice().compile(lower(network), initialise(network))
    given = {"input": np.array([1, 2]), "types": np.array([0, 2])}
    found = executable.run([SequenceRows(executable.new_state(), given)])[0]
    assert isinstance(found, Mapping)
    assert {name: rows.shape for name, rows in found.items()} == {"output": (1, WIDTH), "logits": (1, 2)}


def test_builders_keep_ends_true_or_refuse() -> None:
    network = two_ends()
    with pytest.raises(UnsupportedError, match="several inputs or outputs \\(types\\) cannot become one layer"):
        as_layer(network)
    with pytest.raises(UnsupportedError, match="a sum after the last layer has no effect"):
        around(two_ends(outputs={"output": Coord(0)}))
    with pytest.raises(UnsupportedError, match="one input and one output"):
        loom_text(network)
    described = blueprint(network).describe()
    assert described["inputs"]["types"] == {"at": "1.0.0.0", "shape": "[T]", "dtype": "int32", "combine": "replace"}
    assert described["outputs"] == {"types_embedded": "1.0.0.0"}
    plain = chain(
        [Dense(in_features=4, out_features=4), BatchNorm1d(num_features=4), Dense(in_features=4, out_features=2)], (4,)
    )
    tapped = dataclasses.replace(plain, outputs={"before": next(iter(plain.layers))})
    params = initialise(tapped)
    assert len(fold_batchnorm(plain, params)[0].layers) == 2
    assert len(fold_batchnorm(tapped, params)[0].layers) == 3


def test_mutations_keep_taps_and_their_shapes() -> None:
    network = two_ends()
    genome = GridGenome.first(network, initialise(network))
    assert hash(genome) != hash(GridGenome.first(two_ends(outputs={}), genome.params))
    assert toggle(genome, Coord(1)) is None  # the tap would be ids
    narrow = {**network.layers, Coord(1): Embedding(num_embeddings=3, embedding_dim=4)}
    assert with_structure(genome, layers=narrow, links=(), link_markings=()) is None
    kept = with_structure(genome, layers={**network.layers, Coord(1): Embedding(num_embeddings=5, embedding_dim=WIDTH)})
    assert kept is None or kept.network.outputs == network.outputs


def test_samples_of_several_inputs_are_predicted(rng: np.random.Generator) -> None:
    network = two_ends()
    params = initialise(network, 2)
    tokens, types = rng.integers(0, 11, 300), rng.integers(0, 3, 300)
    found = predict(network, params, {"input": tokens, "types": types}, device="reference", batch_size=32)
    made = params["0.0.0.0/weight"].values()[tokens] + params["1.0.0.0/weight"].values()[types]
    want = made @ params["2.0.0.0/weight"].values().T + params["2.0.0.0/bias"].values()
    np.testing.assert_allclose(found, want, atol=1e-6)
    with pytest.raises(ShapeError, match="the same number of samples, got input"):
        predict(network, params, {"input": tokens, "types": types[:9]}, device="reference")
    with pytest.raises(ShapeError, match="got nothing for types"):
        predict(network, params, tokens, device="reference")


def test_a_residual_adds_the_input_called_input(rng: np.random.Generator) -> None:
    dense = Dense(in_features=3, out_features=3)
    layers = {Coord(0): dense, Coord(1): Residual(source="input")}
    ports = {"more": Port(coord=Coord(1), shape=(3,))}
    network = Network(grid=Grid(2), layers=layers, input_shape=(3,), input_dtype="float32", inputs=ports)
    executable = ReferenceDevice().compile(lower(network), initialise(network))
    x, more = rng.standard_normal((2, 4, 3)).astype(np.float32)
    got = executable.forward(executable.new_state(), {"input": x, "more": more}, last_only=False)
    np.testing.assert_allclose(got, x + more, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "default"), [("int32", 2), ("float32", -1.5), ("float32", 3)])
def test_defaults_stand_in_for_inputs_that_are_left_out(dtype: str, default: float) -> None:
    port = Port(coord=Coord(1), dtype="int32", default=default) if dtype == "int32" else None
    if port is None:
        port = Port(coord=Coord(2), shape=(WIDTH,), combine="add", default=default)
    types = {"types": two_ends().inputs["types"]}
    network = two_ends(inputs={"types": port} if dtype == "int32" else types | {"more": port})
    assert Network.from_json(network.to_json()) == network
    assert json.loads(network.to_json())["inputs"].popitem()[1]["default"] == default
    ids, params = np.array([3, 9, 4, 4]), initialise(network)
    given = {"input": ids} if dtype == "int32" else {"input": ids, "types": np.array([0, 1, 2, 0])}
    name, row = ("types", ()) if dtype == "int32" else ("more", (WIDTH,))
    whole = given | {name: np.full((4, *row), default, dtype)}
    expected = predict(network, params, whole, device="reference")
    for device in ("reference", "cpu"):
        np.testing.assert_allclose(predict(network, params, given, device=device), expected, rtol=1e-5)
        samples = {key: x[None] for key, x in given.items()}
        np.testing.assert_allclose(predict(network, params, samples, device=device)[0], expected, rtol=1e-5)
    if dtype == "int32":
        np.testing.assert_array_equal(predict(network, params, ids, device="reference"), expected)
    with pytest.raises(ShapeError, match="nothing for input"):
        predict(network, params, {name: whole[name]})


@pytest.mark.parametrize(
    ("dtype", "default"),
    [("int32", -1), ("int32", 0.5), ("int32", 2**31), ("float32", np.nan), ("float32", np.inf), ("float32", 10**400),
     ("float32", True), ("float32", "0")],
)  # fmt: skip
def test_defaults_that_an_input_cannot_hold_are_refused(dtype: str, default: object) -> None:
    with pytest.raises(SpecError, match=rf"default of an input of {dtype} must be"):
        Port(coord=Coord(0), dtype=dtype, default=default)  # pyright: ignore[reportArgumentType]
