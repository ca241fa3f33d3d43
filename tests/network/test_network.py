"""Building networks: wiring, shapes, sharing, JSON, and errors that name the place."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.examples import CASES
from tests.networks import tiny_llama
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.layers import Dense, Embedding, LayerSpec, Residual, Sequential, Softmax
from volumetric.network import Network, check_params, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.network.weight_store import Params, WeightStore
from volumetric.network.wiring import check_order


def chain(*layers: LayerSpec, links: tuple[Link, ...] = (), disabled: frozenset[Coord] = frozenset()) -> Network:
    return Network(
        grid=Grid(len(layers)),
        layers={Coord(z): layer for z, layer in enumerate(layers)},
        links=links,
        disabled=disabled,
        input_shape=(4,),
        input_dtype="float32",
    )


def dense(i: int = 4, o: int = 4) -> Dense:
    return Dense(in_features=i, out_features=o)


def activation(source: int, target: int, combine: str = "replace") -> Link:
    return Link(kind="activation", source=Coord(source), target=Coord(target), combine=combine)  # pyright: ignore[reportArgumentType]


def test_shapes_are_inferred_along_the_chain() -> None:
    network = chain(dense(4, 6), dense(6, 3), Softmax())
    assert network.shapes == {Coord(0): (-1, 6), Coord(1): (-1, 3), Coord(2): (-1, 3)}


def test_a_wrong_shape_names_coordinate_layer_and_source() -> None:
    with pytest.raises(
        ShapeError, match=r"dense at 1\.0\.0\.0 \(reads the output of 0\.0\.0\.0\).*5 features.*\[T, 6\]"
    ):
        chain(dense(4, 6), dense(5, 3))
    with pytest.raises(ShapeError, match=r"residual at 1\.0\.0\.0.*cannot add shape \[T, 4\] to shape \[T, 6\]"):
        chain(dense(4, 6), Residual())
    with pytest.raises(ShapeError, match=r"sequential at 0\.0\.0\.0.*layer 1 of sequential.*6 features"):
        chain(Sequential(layers=(dense(), dense(6, 6))))
    with pytest.raises(ShapeError, match="embedding at"):
        chain(Embedding(num_embeddings=3, embedding_dim=2))


def test_activation_links_replace_or_add_and_must_fit() -> None:
    replaced = chain(dense(), dense(4, 7), dense(), links=(activation(0, 2),))
    assert replaced.shapes[Coord(2)] == (-1, 4)
    added = chain(dense(), dense(), dense(), links=(activation(0, 2, "add"),))
    assert [str(s) for s in added.wires[2].inputs] == ["the output of 1.0.0.0", "the output of 0.0.0.0"]
    with pytest.raises(ShapeError, match=r"cannot add the output of 0\.0\.0\.0"):
        chain(dense(4, 6), dense(6, 4), dense(), links=(activation(0, 2, "add"),))


def test_loops_are_named() -> None:
    looped = chain(dense(), dense(), dense(), links=(activation(2, 1),))  # built, but not run
    with pytest.raises(SpecError, match=r"loop: 1\.0\.0\.0 → 2\.0\.0\.0 → 1\.0\.0\.0"):
        check_order(looped.wires, looped.layers)
    with pytest.raises(SpecError, match=r"residual at 1\.0\.0\.0 closes a loop"):
        chain(dense(), Residual(source="1.0.0.0"))


def test_links_and_residuals_to_nowhere_are_refused() -> None:
    with pytest.raises(SpecError, match=r"no layer at its source 5\.0\.0\.0"):
        chain(dense(), Residual(source="5.0.0.0"))
    with pytest.raises(SpecError, match="preceding layer"):
        chain(Residual())
    network = Network(grid=Grid(3), layers={Coord(0): dense()}, input_shape=(4,), input_dtype="float32")
    with pytest.raises(SpecError, match=r"no layer at 2\.0\.0\.0"):
        network.with_link(activation(0, 2))
    with pytest.raises(SpecError, match="outside of the grid"):
        network.with_layer(Coord(7), dense())


def test_sharing_follows_chains_and_finds_rings() -> None:
    def shared(source: int, target: int) -> Link:
        return Link(kind="shared", source=Coord(source), target=Coord(target))

    network = chain(dense(), dense(), dense(), links=(shared(0, 1), shared(1, 2)))
    assert network.resolve("2.0.0.0/bias") == "0.0.0.0/bias"
    assert set(network.param_specs()) == {"0.0.0.0/weight", "0.0.0.0/bias"}
    with pytest.raises(SpecError, match="form a loop"):
        chain(dense(), dense(), links=(shared(0, 1), shared(1, 0)))
    with pytest.raises(SpecError, match="differ"):
        chain(dense(4, 6), dense(6, 4), links=(shared(0, 1),))
    with pytest.raises(SpecError, match="already shares"):
        chain(dense(), dense(), dense(), links=(shared(0, 2), shared(1, 2)))
    with pytest.raises(SpecError, match="unknown parameter"):
        chain(dense(), Softmax(), dense(), links=(shared(1, 2),))


def test_a_disabled_slot_passes_its_input_on() -> None:
    network = chain(dense(), dense(4, 9), dense(), disabled=frozenset({Coord(1)}))
    assert network.shapes[Coord(1)] == (-1, 4)


@pytest.mark.parametrize("name", CASES)
def test_every_layer_survives_json(name: str) -> None:
    spec, shape = CASES[name]
    network = Network(
        grid=Grid(2, 1, 2, 3),
        layers={Coord(1, 0, 1, 2): spec},
        input_shape=shape[1:],
        input_dtype="int32" if isinstance(spec, Embedding) else "float32",
        disabled=frozenset({Coord(0)}),
    )
    text = network.to_json()
    again = Network.from_json(text)
    assert again == network
    assert again.to_json() == text


def test_a_whole_model_survives_json_with_links() -> None:
    network = tiny_llama()
    assert Network.from_json(network.to_json().encode()) == network


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="x"), "format is 'x'"),
        (lambda d: d.update(version=99), "version 99"),
        (lambda d: d.update(extra=1), "unknown key 'extra'"),
        (lambda d: d.update(grid=[1, 1, 1]), r"\$\.grid"),
        (lambda d: d.update(grid=[0, 1, 1, 1]), "depth must be"),
        (lambda d: d["input"].update(dtype="int8"), r"\$\.input\.dtype"),
        (lambda d: d["layers"].update({"0.0.0": {"kind": "softmax"}}), "not a coordinate"),
        (lambda d: d["layers"]["0.0.0.0"].update(kind="embeding"), "unknown layer kind 'embeding'"),
        (lambda d: d["layers"]["0.0.0.0"].update(kind=["embedding"]), "unknown layer kind"),
        (lambda d: d["layers"]["0.0.0.0"].update(kind={"a": 1}), "unknown layer kind"),
        (lambda d: d["layers"]["0.0.0.0"].update(num_embeddings="\ud800"), "surrogate"),
        (lambda d: d["layers"].update({"9" * 5000 + ".0.0.0": {"kind": "softmax"}}), "is not a coordinate"),
        (lambda d: d["layers"]["0.0.0.0"].update(num_embeddings="many"), r"\$\.layers\.0\.0\.0\.0\.num_embeddings"),
        (lambda d: d["layers"]["0.0.0.0"].pop("num_embeddings"), "num_embeddings"),
        (lambda d: d["layers"]["1.0.0.1"].update(num_head=3), "unknown key 'num_head'"),
        (lambda d: d["layers"]["1.0.0.1"]["rope"].update(dim=3), "dim must be even"),
        (lambda d: d["layers"]["1.0.0.1"]["rope"].update(bas=3), r"1\.0\.0\.1\.rope: unknown key 'bas'"),
        (lambda d: d["links"][0].pop("source"), "needs a source"),
        (lambda d: d["links"][0].update(kind="weights"), "link kind"),
        (lambda d: d.update(layers={}), "at least one layer"),
    ],
)
def test_damaged_json_is_refused_with_its_place(change, message: str) -> None:
    data = json.loads(tiny_llama().to_json())
    change(data)
    with pytest.raises(SpecError, match=message):
        Network.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000, b"\xff\xfe"])
def test_other_text_is_refused(text: str | bytes) -> None:
    with pytest.raises(SpecError):
        Network.from_json(text)


def test_initial_parameters_fit_and_depend_on_the_seed_alone() -> None:
    network = tiny_llama()
    params = initialise(network, seed=3)
    check_params(network, params)
    again, other = initialise(network, seed=3), initialise(network, seed=4)
    key = "1.0.0.1/q.weight"
    assert np.array_equal(params[key].values(), again[key].values())
    assert not np.array_equal(params[key].values(), other[key].values())
    assert np.all(params["1.0.0.0/weight"].values() == 1)


def test_parameters_that_do_not_fit_are_listed() -> None:
    network = tiny_llama()
    stores = dict(initialise(network))
    stores["9.0.0.0/weight"] = stores.pop("1.0.0.1/q.weight")
    stores["1.0.0.1/k.weight"] = WeightStore.from_array(np.zeros((2, 2), np.float32))
    with pytest.raises(CheckpointError) as caught:
        check_params(network, Params(stores))
    for part in ("missing 1.0.0.1/q.weight", "unexpected 9.0.0.0/weight", "1.0.0.1/k.weight has shape (2, 2)"):
        assert part in str(caught.value)
