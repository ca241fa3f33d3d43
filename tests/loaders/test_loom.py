"""The Go engine's JSON: its own files run here to its own outputs, and writing them gives its bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric.analysis import predict
from volumetric.base.errors import CheckpointError, ShapeError, SpecError, UnsupportedError, VolumetricError
from volumetric.builders import chain, cnn, random_grid, sequential, transformer
from volumetric.cli import main
from volumetric.dtypes import Scheme
from volumetric.layers import (
    GRU,
    RNN,
    Conv1d,
    ConvTranspose1d,
    Dense,
    Gate,
    GridSoftmax,
    LayerNorm,
    MaskedSoftmax,
    MultiHeadAttention,
    Parallel,
    Residual,
    RMSNorm,
    Rope,
    Sequential,
    Softmax,
    SwiGLU,
)
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.loom_json import read_loom
from volumetric.loaders.loom_write import loom_text, save_loom
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import WeightStore

HOME = Path(__file__).parents[1] / "fixtures" / "loom"
FILES = sorted(HOME.glob("*.json"))
LOW = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "ternary": 2, "binary": 1}


def stored(path: Path) -> tuple[dict[str, Any], Iterator[tuple[str, str, Any, bool]]]:
    about = json.loads(path.read_text())
    cases = (
        (c["dtype"], json.dumps(c["file"], indent=2, ensure_ascii=False), c["y"], c["bytes"]) for c in about["cases"]
    )
    return about, cases


def run(network: Network, params: Params, about: dict[str, Any]) -> np.ndarray:
    x = np.array(about["x"]).reshape(about["shape"])
    return predict(network, params, x.astype(np.int32 if network.input_dtype == "int32" else np.float32)).ravel()


def test_there_are_files_of_every_kind_and_type() -> None:
    assert len(FILES) == 19
    assert sum(len(json.loads(path.read_text())["cases"]) for path in FILES) == 5 * 21 + 14 * 6


@pytest.mark.thorough
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_of_the_engine_compute_what_they_do_there(path: Path) -> None:
    about, cases = stored(path)
    for dtype, text, y, _ in cases:
        network, params = read_loom(text, dtype)
        assert params is not None
        here = run(network, params, about)
        if y is not None:
            np.testing.assert_allclose(here, y, rtol=1e-4, atol=2e-5 * np.abs(y).max(), err_msg=dtype)
        else:
            assert path.stem.startswith(("transposed", "kmeans"))
            assert np.ptp(here) > 0.01


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_writing_what_was_read_gives_the_same_values_and_mostly_the_same_bytes(path: Path) -> None:
    about, cases = stored(path)
    for dtype, text, _, same in cases:
        network, params = read_loom(text, dtype)
        assert params is not None
        written = loom_text(network, params, seq_length=about["shape"][1] if len(about["shape"]) == 3 else 1)
        assert (written == text) == same
        again, weights = read_loom(written)
        assert again == network
        assert weights is not None
        for key, store in params.items():
            np.testing.assert_array_equal(weights[key].values(), store.values(), err_msg=f"{dtype} {key}")
        assert loom_text(again, weights, seq_length=about["shape"][1] if len(about["shape"]) == 3 else 1) == written


def test_bytes_are_the_engines_for_types_that_hold_the_values() -> None:
    equal = {dtype for path in FILES for dtype, _, _, same in stored(path)[1] if same}
    assert {"float32", "int64", "int8", "int4", "uint4", "int2", "ternary", "binary", "fp8e4m3"} <= equal


@pytest.mark.parametrize("dtype", LOW)
def test_low_bit_weights_stay_packed_here(dtype: str) -> None:
    (text,) = [text for name, text, _, _ in stored(HOME / "dense.json")[1] if name == dtype]
    _, params = read_loom(text)
    assert params is not None
    scheme = params["0.0.0.0/weight"].scheme
    assert (scheme.dtype.bits, scheme.dtype.name) == (LOW[dtype], dtype)
    blob = base64.b64decode(json.loads(text)["layers"][0]["weights"])
    assert len(blob) == -(-24 * LOW[dtype] // 8)


def everything() -> Network:
    """A network with slots that are empty or off, images that become features, and nested layers."""
    inside = Sequential(layers=(Dense(in_features=6, out_features=6, bias=False, activation="silu"), Residual()))
    layers = {
        Coord(0): cnn((2, 5), 4, channels=(3,)).layers[Coord(0)],
        Coord(1, 0, 1): cnn((2, 5), 4, channels=(3,)).layers[Coord(1)],
        Coord(2): Dense(in_features=15, out_features=6, bias=False),
        Coord(2, 0, 1): RMSNorm(num_features=6),
        Coord(3): Parallel(branches=(inside, Dense(in_features=6, out_features=6, bias=False)), combine="avg"),
        Coord(3, 0, 1): Softmax(temperature=1.5),
    }
    return Network(
        grid=Grid(4, 1, 2),
        layers=layers,
        disabled=frozenset({Coord(2, 0, 1)}),
        input_shape=(2, 5),
        input_dtype="float32",
    )


def test_a_whole_network_goes_there_and_back() -> None:
    network = everything()
    params = initialise(network, 3)
    x = np.random.default_rng(0).normal(size=(3, 2, 5)).astype(np.float32)
    text = loom_text(network, params)
    head = json.loads(text)
    assert [layer.get("is_disabled", False) for layer in head["layers"]] == [0, 1, 1, 1, 0, 1, 0, 0]
    again, weights = read_loom(text)
    assert weights is not None
    np.testing.assert_allclose(predict(again, weights, x), predict(network, params, x), atol=1e-6)
    assert loom_text(again, weights) == text


@pytest.mark.parametrize("scheme", ["float64", "bfloat16", "int8:g32", "uint4:g32", "ternary:row", "float8_e4m3fn:row"])
def test_every_value_survives_whatever_the_scheme(scheme: str) -> None:
    network = sequential(40, 5, hidden=(33,), bias=False)
    params = initialise(network)
    for store in params.values():
        store.morph(Scheme.parse(scheme))
        store.drop_master()
    _, again = read_loom(loom_text(network, params))
    assert again is not None
    for key, store in params.items():
        np.testing.assert_array_equal(again[key].values(), store.values())


def test_structure_alone_has_no_weights() -> None:
    network = everything()
    text = loom_text(network)
    assert "weights" not in text
    again, params = read_loom(text)
    assert params is None
    assert again.param_specs().keys() == read_loom(loom_text(network, initialise(network)))[0].param_specs().keys()


def test_a_list_without_coordinates_fills_the_grid_in_order_and_names_are_loose() -> None:
    layers = [
        {"type": "dense", "activation": "silu", "dtype": "F32", "input_height": 3, "output_height": 4},
        {"type": "LAYERNORM", "input_height": 4},
        {"type": "mha", "d_model": 4, "num_heads": 2, "rope_freq_base": 100.0},
        {"type": "Residual"},
    ]
    network, params = read_loom(json.dumps({"id": "n", "depth": 2, "rows": 1, "cols": 2, "layers": layers}))
    assert params is None
    assert list(network.layers.values()) == [
        Dense(in_features=3, out_features=4, bias=False, activation="silu"),
        LayerNorm(num_features=4),
        MultiHeadAttention(embed_dim=4, num_heads=2, num_kv_heads=2, head_dim=2, qkv_bias=True, out_bias=True,
                           rope=Rope(dim=2, base=100.0)),
        Residual(),
    ]  # fmt: skip
    assert network.disabled == {Coord(1, 0, 1)}


def one(**fields: Any) -> str:
    layer = {"type": "Dense", "input_height": 2, "output_height": 1, **fields}
    return json.dumps({"id": "network", "depth": 1, "rows": 1, "cols": 1, "layers_per_cell": 1, "layers": [layer]})


EIGHT = base64.b64encode(np.ones(2, np.float32).tobytes()).decode()
WRONG: dict[str, tuple[str, type[VolumetricError], str]] = {
    "no JSON": ("{", CheckpointError, "not JSON"),
    "something else": ("[]", CheckpointError, "not a network of the Go engine"),
    "deep": ("[" * 100_000, CheckpointError, "not JSON"),
    "no layers": ('{"depth": 1, "layers": []}', SpecError, "no layer determines"),
    "grid": ('{"depth": 0, "layers": []}', SpecError, "depth must be"),
    "layer": ('{"depth": 1, "layers": [3]}', SpecError, "expected an object"),
    "field": (one(kernel=3), SpecError, "unknown field 'kernel'"),
    "type": (one(type="Dens"), SpecError, "unknown type 'Dens'"),
    "activation": (one(activation="Swish"), SpecError, "unknown activation 'Swish'"),
    "dtype": (one(dtype="int3", weights=EIGHT), SpecError, "unknown dtype 'int3'"),
    "text": (one(activation=3), SpecError, "activation is '3'"),
    "number": (one(input_height="2"), SpecError, "input_height is '2'"),
    "truth": (one(input_height=True), SpecError, "input_height is 'True'"),
    "negative": (one(input_height=-1), SpecError, "input_height is '-1'"),
    "huge": (one(input_height=2**40), SpecError, "input_height is"),
    "zero": (one(input_height=0), SpecError, "input_height must be above 0"),
    "place": (one(z=3), SpecError, "outside of the grid"),
    "base64": (one(weights="?"), CheckpointError, "not base64"),
    "length": (one(weights=EIGHT[:-4]), CheckpointError, "2 weights of float32 take 8 bytes"),
    "heads": (one(type="MHA", d_model=6, num_heads=4, num_kv_heads=3), SpecError, "share 3 key/value heads"),
    "mask": (one(type="Softmax", softmax_type="Masked"), UnsupportedError, "lacks its mask"),
    "gate": (
        one(type="Parallel", combine_mode="filter", parallel_branches=[{"input_height": 2, "output_height": 1}]),
        UnsupportedError,
        "the file has no gate",
    ),
    "branch": (one(type="Parallel", parallel_branches=[{"x": -1}]), SpecError, "x is '-1'"),
    "embedding": (one(type="Embedding", activation="ReLU"), UnsupportedError, "Embedding layer with an activation"),
}


@pytest.mark.parametrize(("text", "kind", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(text: str, kind: type[VolumetricError], message: str) -> None:
    with pytest.raises(kind, match=message):
        read_loom(text)


def test_layers_that_do_not_fit_each_other_and_nesting_without_end() -> None:
    two = [{"input_height": 2, "output_height": 3, "z": z} for z in (0, 1)]
    with pytest.raises(ShapeError, match=r"at 1\.0\.0\.0"):
        read_loom(json.dumps({"depth": 2, "layers": two}))
    with pytest.raises(SpecError, match="two layers are at"):
        read_loom(json.dumps({"depth": 2, "layers": [two[0], two[0]]}))
    with pytest.raises(SpecError, match="do not fit a grid"):
        read_loom(json.dumps({"depth": 1, "layers": [{}, {}]}))
    some = [{**two[0], "weights": base64.b64encode(bytes(24)).decode()}, {**two[0], "input_height": 3, "z": 1}]
    with pytest.raises(CheckpointError, match="has none"):
        read_loom(json.dumps({"depth": 2, "layers": some}))
    layer: dict[str, Any] = {"input_height": 2, "output_height": 2}
    for _ in range(70):
        layer = {"type": "Sequential", "sequential_layers": [layer]}
    with pytest.raises(SpecError, match="nested deeper"):
        read_loom(json.dumps({"depth": 1, "layers": [layer]}))


NOT_THERE = {
    "links": (transformer(9, width=8, blocks=1, heads=2), "cannot store links"),
    "kind": (chain([GRU(input_size=2, hidden_size=2)], (2,)), "no layer 'gru'"),
    "residual": (chain([Softmax(), Residual()], (2,)), "ignores a residual"),
    "bias of rows": (chain([Dense(in_features=3, out_features=4)], (5, 3)), "have no bias"),
    "bias of images": (chain([Conv1d(in_channels=2, out_channels=3, kernel_size=2)], (2, 4)), "have no bias"),
    "bias": (chain([ConvTranspose1d(in_channels=2, out_channels=2, kernel_size=2)], (2, 3)), "have no bias"),
    "far residual": (
        chain([Sequential(layers=(Softmax(), Softmax(), Residual(source="input")))], (2,)),
        "can only add the input of the layer before it",
    ),
    "chunk": (chain([MultiHeadAttention(embed_dim=4, num_heads=2, chunk=2)], (4,)), "supports only chunk None"),
    "sinks": (chain([MultiHeadAttention(embed_dim=4, num_heads=2, sinks=True)], (4,)), "supports only sinks False"),
    "limit": (chain([SwiGLU(in_features=4, hidden_features=4, limit=1.0)], (4,)), "supports only limit None"),
    "window": (chain([MultiHeadAttention(embed_dim=4, num_heads=2, window=2)], (4,)), "supports only window None"),
    "eps": (chain([RMSNorm(num_features=2, eps=1e-5)], (2,)), "supports only eps 1e-06"),
    "gate": (
        chain([SwiGLU(in_features=2, hidden_features=2, activation="relu")], (2,)),
        "supports only activation 'silu'",
    ),
    "relu rnn": (
        chain([RNN(input_size=2, hidden_size=2, nonlinearity="relu")], (2,)),
        "supports only nonlinearity 'tanh'",
    ),
    "activation": (chain([Dense(in_features=2, out_features=2, activation="gelu")], (2,)), "no activation 'gelu'"),
    "groups": (
        chain([Conv1d(in_channels=2, out_channels=2, kernel_size=1, groups=2)], (2, 3)),
        "supports only groups 1",
    ),
    "dilation": (chain([Conv1d(in_channels=1, out_channels=1, kernel_size=2, dilation=2)], (1, 5)), "without dilation"),
    "mask": (chain([MaskedSoftmax(mask=(True, False))], (2,)), "no masked_softmax"),
    "axis": (chain([GridSoftmax(rows=1, cols=2, axis=1)], (2,)), "supports only axis -1"),
    "filter": (
        chain(
            [Parallel(branches=(Softmax(), Softmax()), combine="filter", gate=Gate(in_features=2, out_features=2))],
            (2,),
        ),
        "cannot store combine 'filter'",
    ),
}


@pytest.mark.parametrize(("network", "message"), NOT_THERE.values(), ids=NOT_THERE)
def test_what_the_engine_does_not_have_is_refused(network: Network, message: str) -> None:
    params = initialise(network)
    for key, store in params.items():
        if key.endswith("bias"):
            store.assign(np.ones(store.shape, np.float32))
    with pytest.raises(UnsupportedError, match=message):
        loom_text(network, params)


BIASED = {
    "dense": sequential(3, 2, hidden=(5,), activation="tanh"),
    "nested": chain([Sequential(layers=(Dense(in_features=3, out_features=3), Residual()))], (3,)),
}


@pytest.mark.parametrize("name", BIASED)
def test_biases_that_the_engine_lacks_become_layers_that_it_has(name: str) -> None:
    network, random = BIASED[name], np.random.default_rng(4)
    params = initialise(network, seed=2)
    for key, store in params.items():
        if key.endswith("bias"):
            store.assign(random.normal(size=store.shape).astype(np.float32))
    found, stores = read_loom(loom_text(network, params))
    assert stores is not None
    assert not any(getattr(spec, "bias", False) for spec in found.layers.values())
    x = random.normal(size=(4, *network.input_shape)).astype(np.float32)
    wanted = predict(network, params, x, device="reference")
    read = predict(found, stores, x, device="reference")
    np.testing.assert_allclose(read, wanted, rtol=1e-6, atol=1e-6)


def test_biases_of_zero_are_left_out() -> None:
    network = sequential(2, 1)
    assert read_loom(loom_text(network, initialise(network)))[0] == sequential(2, 1, bias=False)


def test_models_open_from_the_file_and_are_converted_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = random_grid(6, kinds=("rms_norm", "lstm", "swiglu", "softmax"), seed=3)
    params = Params({key: WeightStore.from_array(s.values()) for key, s in initialise(network).items()})
    save_loom(tmp_path / "a.json", network, params, seq_length=4)
    convert_model(tmp_path / "a.json", tmp_path / "native")
    convert_model(tmp_path / "native", tmp_path / "b.json")
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    expected = predict(network, params, x)
    for name in ("a.json", "native", "b.json"):
        model = open_model(tmp_path / name)
        np.testing.assert_allclose(predict(model.network, model.params, x), expected, atol=1e-6)
    assert main(["convert", str(tmp_path / "a.json"), str(tmp_path / "c"), "--dtype", "int8"]) == 0
    assert "int8:g32" in {str(scheme) for scheme in open_model(tmp_path / "c").params.schemes()}
    assert main(["inspect", str(tmp_path / "a.json")]) == 0
    assert "swiglu" in capsys.readouterr().out
    (tmp_path / "net.json").write_text(network.to_json())
    assert open_model(tmp_path / "net.json").network == network
    with pytest.raises(CheckpointError, match="is a directory"):
        save_loom(tmp_path, network)
