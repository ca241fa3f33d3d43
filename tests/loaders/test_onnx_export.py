"""ONNX models that are written: onnxruntime computes what the reference does, of every kind of layer, in any number of
rows."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.evolution.genomes import genome
from tests.examples import CASES
from tests.layers.test_vjp import arrays
from tests.loaders.tiny import FAMILIES, TINY
from volumetric.analysis.standardise import Standardisation
from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.builders import chain, sequential
from volumetric.cli import main
from volumetric.dtypes import DTYPES, Scheme
from volumetric.graph import GraphBuilder
from volumetric.graph.interpret import interpret
from volumetric.graph.operations import OPS
from volumetric.layers import LSTM, MLSTM, Conv2d, Dense, Embedding, Flatten, LayerSpec, MaxPool2d, MultiHeadAttention
from volumetric.loaders import open_model, save_native, save_onnx
from volumetric.loaders.native_checkpoint import NativeFacts
from volumetric.loaders.onnx_export.onnx_operations import translations, write_nodes
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter
from volumetric.loaders.onnx_export.open_graph import join_graphs
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Link, Port
from volumetric.run.device import RunOptions, SequenceRows
from volumetric.run.graph.network_graph import graph_of
from volumetric.run.lower import lower

TOLERANCE = 1e-5
SIZES = (1, 2, 11)
"""Numbers of rows that a written model takes, beside that of the example."""
FEWER = {"position": 7}
"""Examples with a table of positions, and how many rows it is for."""


def network_of(spec: LayerSpec, shape: tuple[int, ...]) -> Network:
    ids = isinstance(spec, Embedding)
    return chain([spec], () if ids else shape[1:], "int32" if ids else "float32")


def filled(network: Network, spec: LayerSpec | None = None, shape: tuple[int, ...] = (2, 2)) -> Params:
    """Weights far from their initial values, which are often 0 or 1."""
    params, rng = initialise(network, 0), np.random.default_rng(3)
    values = {} if spec is None else arrays(spec, shape, 3)[0]
    for key, store in params.items():
        drawn = rng.standard_normal(store.shape) * 0.5
        store.assign(values.get(key.partition("/")[2], drawn).astype(np.float32))
        store.drop_master()
    return params


def inputs_of(network: Network, rows: int) -> dict[str, np.ndarray]:
    rng, plan = np.random.default_rng(rows), lower(network)
    values = {name: plan.values[i] for name, i in plan.inputs.items()}
    return {
        name: rng.integers(0, 3, (rows, *v.shape[1:])).astype(np.int32)
        if v.dtype == "int32"
        else rng.standard_normal((rows, *v.shape[1:])).astype(np.float32)
        for name, v in values.items()
    }


def expected(network: Network, params: Params, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    rows = len(next(iter(inputs.values())))
    buffers = {key: store.values() for key, store in params.items()}
    return interpret(graph_of(network, rows), [*inputs.values()], buffers)


def computed(path: Path, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == [*inputs]
    return [np.asarray(y) for y in session.run(None, dict(inputs))]


def assert_near(found: list[np.ndarray], wanted: list[np.ndarray], tolerance: float = TOLERANCE) -> None:
    assert [y.shape for y in found] == [y.shape for y in wanted]
    for y, want in zip(found, wanted, strict=True):
        assert np.isfinite(want).all()
        np.testing.assert_allclose(y, want, rtol=0, atol=tolerance * max(np.abs(want).max(initial=0), 1e-6))


def operators(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


@pytest.mark.parametrize("name", CASES)
def test_every_layer_computes_the_same_in_any_number_of_rows(name: str, tmp_path: Path) -> None:
    spec, shape = CASES[name]
    network, path = network_of(spec, shape), tmp_path / "m.onnx"
    params = filled(network, spec, shape)
    assert save_onnx(path, network, params).rows is None
    for rows in {shape[0], *(min(size, FEWER.get(name, size)) for size in SIZES)}:
        inputs = inputs_of(network, rows)
        assert_near(computed(path, inputs), expected(network, params, inputs))


@pytest.mark.parametrize("dtype", [*(d.name for d in DTYPES), "int8:row", "int4:g64", "uint8:row", "q4_k", "q6_k"])
@pytest.mark.parametrize("width", [64, 80])
def test_weights_of_every_type_have_the_same_values(dtype: str, width: int, tmp_path: Path) -> None:
    network, path = sequential(width, 24, hidden=(32,)), tmp_path / "m.onnx"
    params = filled(network)
    for key, spec in network.param_specs().items():
        if spec.packable:
            params[key].morph(Scheme.parse(dtype))
            params[key].drop_master()
    report, inputs = save_onnx(path, network, params), inputs_of(network, 4)
    assert_near(computed(path, inputs), expected(network, params, inputs))
    written = {Scheme.parse(scheme) for scheme in report.decoded}
    own = {params[key].scheme for key, spec in network.param_specs().items() if spec.packable}
    in_float32 = ("float64", "int64", "int32", "uint64", "uint32", "float4_e2m1fn", "q4_k", "q6_k")
    assert written == (own if dtype in in_float32 else set())


@pytest.mark.parametrize(("dtype", "kind"), [("int8:row", 3), ("int4:g32", 22), ("uint4:g32", 21), ("float16", 10)])
def test_codes_stay_codes(dtype: str, kind: int, tmp_path: Path) -> None:
    network, path = chain([Dense(in_features=64, out_features=64)], (64,)), tmp_path / "m.onnx"
    params = initialise(network, 1)
    params["0.0.0.0/weight"].morph(Scheme.parse(dtype))
    params["0.0.0.0/weight"].drop_master()
    save_onnx(path, network, params)
    weights = [t for t in onnx.load(path).graph.initializer if list(t.dims) == [64, 64]]
    assert [t.data_type for t in weights] == [kind]
    assert ("DequantizeLinear" in operators(path)) == (dtype != "float16")


def test_the_model_is_opset_21_with_named_axes(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for network, axis in ((sequential(3, 2), "N"), (chain([LSTM(input_size=3, hidden_size=2)], (3,)), "T")):
        save_onnx(path, network, initialise(network, 0))
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        assert (model.ir_version, model.opset_import[0].version) == (10, 21)
        axes = [v.type.tensor_type.shape.dim[0].dim_param for v in (*model.graph.input, *model.graph.output)]
        assert axes == [axis, axis]


def test_convolutions_and_cells_become_operators(tmp_path: Path) -> None:
    images = chain(
        [
            Conv2d(in_channels=1, out_channels=4, kernel_size=3, padding=1, activation="relu"),
            MaxPool2d(kernel_size=2),
            Flatten(),
            Dense(in_features=64, out_features=3),
        ],
        (1, 8, 8),
    )
    texts = chain(
        [
            Embedding(num_embeddings=5, embedding_dim=6),
            LSTM(input_size=6, hidden_size=7),
            LSTM(input_size=7, hidden_size=4),
            Dense(in_features=4, out_features=5),
        ],
        (),
        "int32",
    )
    for network, names in ((images, {"Conv", "MaxPool", "Gemm"}), (texts, {"LSTM", "Gather", "Gemm"})):
        path, params = tmp_path / "m.onnx", filled(network)
        save_onnx(path, network, params)
        assert names <= operators(path)
        assert not {"Scan", "Loop"} & operators(path)
        inputs = inputs_of(network, 6)
        assert_near(computed(path, inputs), expected(network, params, inputs))


def test_a_champion_of_neat(tmp_path: Path) -> None:
    links = [
        (0, 0, 4, 1.0, True),
        (1, 1, 4, -2.0, True),
        (2, 4, 5, 1.5, True),
        (3, 5, 2, 0.5, True),
        (4, 0, 2, 1, True),
    ]
    champion = genome(links, hidden=[4, 5])
    network, params = champion.to_network()
    save_onnx(tmp_path / "m.onnx", network, params)
    inputs = inputs_of(network, 5)
    assert_near(computed(tmp_path / "m.onnx", inputs), [champion.activate(inputs["input"]).astype(np.float32)])


@pytest.mark.parametrize("family", ["llama", *(pytest.param(f, marks=pytest.mark.thorough) for f in FAMILIES)])
def test_small_models_of_every_family(family: str, tmp_path: Path) -> None:
    model = open_model(str(TINY / family))
    save_onnx(tmp_path / "m.onnx", model.network, model.params)
    for rows in (1, 9):
        inputs = inputs_of(model.network, rows)
        assert_near(computed(tmp_path / "m.onnx", inputs), expected(model.network, model.params, inputs))


def test_a_loop_between_layers_runs_row_by_row(tmp_path: Path) -> None:
    network = Network(
        layers=[Dense(in_features=3, out_features=3, activation="tanh") for _ in range(2)],
        links=(Link(kind="activation", source=Coord(1), target=Coord(0), delay=1),),
        input_shape=(3,),
        input_dtype="float32",
    )
    params = filled(network)
    save_onnx(tmp_path / "m.onnx", network, params)
    from volumetric.devices.named_devices import open_device

    executable = open_device("reference").compile(lower(network), params, RunOptions())
    x = inputs_of(network, 6)
    wanted = executable.run([SequenceRows(executable.new_state(), x["input"], "all")])
    assert_near(computed(tmp_path / "m.onnx", x), [np.asarray(wanted[0])])


def test_named_inputs_and_outputs(tmp_path: Path) -> None:
    network = Network(
        layers=[Dense(in_features=3, out_features=4), Dense(in_features=4, out_features=2)],
        inputs={"extra": Port(coord=Coord(1), shape=(4,), combine="add")},
        outputs={"hidden": Coord(0)},
        input_shape=(3,),
        input_dtype="float32",
    )
    params, path = filled(network), tmp_path / "m.onnx"
    save_onnx(path, network, params)
    assert [v.name for v in onnx.load(path).graph.output] == ["output", "hidden"]
    inputs = inputs_of(network, 3)
    assert_near(computed(path, inputs), expected(network, params, inputs))


def test_standardisation_and_classes_are_in_the_file(tmp_path: Path) -> None:
    network, path = sequential(3, 2), tmp_path / "m.onnx"
    params, inputs = filled(network), inputs_of(network, 4)
    statistics = Standardisation(mean=(100.0, -3.0, 0.5), deviation=(2.0, 0.25, 1.0))
    save_onnx(path, network, params, inputs=statistics, classes=("cat", "dog"))
    raw = {"input": inputs["input"] * 2 + 100}
    assert_near(computed(path, raw), expected(network, params, {"input": statistics.apply(raw["input"])}))
    assert {p.key: p.value for p in onnx.load(path).metadata_props} == {"classes": "cat\ndog"}


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    network, path = sequential(64, 64), tmp_path / "m.onnx"
    params, inputs = filled(network), inputs_of(network, 2)
    save_onnx(path, network, params, external=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert path.stat().st_size < 4096 < 64 * 64 * 4 <= (tmp_path / "m.onnx.data").stat().st_size
    assert_near(computed(path, inputs), expected(network, params, inputs))


def test_a_number_of_rows_where_no_graph_is_for_all(tmp_path: Path) -> None:
    both_ways = MultiHeadAttention(embed_dim=4, num_heads=1, causal=False)
    network = chain([MLSTM(embed_dim=4, num_heads=1, chunk_size=2), both_ways], (4,))
    params, path = filled(network), tmp_path / "m.onnx"
    with pytest.raises(UnsupportedError, match=r"mlstm at 0\.0\.0\.0 .*(?s:.*)--rows 32"):
        save_onnx(path, network, params)
    assert list(tmp_path.iterdir()) == []
    assert save_onnx(path, network, params, rows=5).rows == 5
    inputs = inputs_of(network, 5)
    assert_near(computed(path, inputs), expected(network, params, inputs))


def test_an_operation_without_a_translation_is_refused_by_its_layer() -> None:
    work = GraphBuilder()
    x = work.input("x", (2, 3))
    with work.at("4.0.0.1"):
        graph = work.finish([work.sumsq([x])])
    with pytest.raises(UnsupportedError, match=r"cannot express the operation sumsq of the layer at 4\.0\.0\.1"):
        write_nodes(OnnxWriter("x"), join_graphs([graph], [2]), {x: "x"})


def test_only_operations_of_training_and_of_devices_have_no_translation() -> None:
    without = {name for name in OPS if name not in translations() and OPS[name].written_out is None}
    training = {"loss", "update", "sumsq", "fake_quant", "dropout", "normal", "pool_spread", "scatter_rows"}
    gradients = {name for name in OPS if name.endswith("_grad")}
    on_packed_rows = {"lookup", "recurrence", "experts", "causal_conv", "selective_scan", "delay", "last"}
    assert without <= training | gradients | on_packed_rows


def test_bad_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = sequential(2, 1)
    params = initialise(network, 0)
    with pytest.raises(UnsupportedError, match=r"must end in \.onnx"):
        save_onnx(tmp_path / "m", network, params)
    with pytest.raises(CheckpointError, match="cannot write"):
        save_onnx(tmp_path / "nowhere" / "m.onnx", network, params)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UnsupportedError, match=r"(?s)needs the onnx package.*volumetric-engine\[onnx\]"):
        save_onnx(tmp_path / "m.onnx", network, params)
    assert list(tmp_path.iterdir()) == []


def test_convert(tmp_path: Path, capsys: Any) -> None:
    network = sequential(256, 2, hidden=(256,))
    params, source, target = filled(network), tmp_path / "native", tmp_path / "m.onnx"
    for key, spec in network.param_specs().items():
        if spec.packable:
            params[key].morph(Scheme.parse("q4_k"))
            params[key].drop_master()
    statistics = Standardisation(mean=(1.0,) * 256, deviation=(2.0,) * 256)
    save_native(source, network, params, facts=NativeFacts(inputs=statistics, classes=("a", "b")))
    assert main(["convert", str(source), str(target)]) == 0
    assert "are q4_k: ONNX has no such codes, they are written as float32" in capsys.readouterr().out
    inputs = inputs_of(network, 3)
    standard = {"input": statistics.apply(inputs["input"])}
    assert_near(computed(target, inputs), expected(network, params, standard))
    assert main(["convert", str(source), str(tmp_path / "int8.onnx"), "--dtype", "int8:row", "--rows", "4"]) == 0
    assert "float32" not in capsys.readouterr().out
    shape = onnx.load(tmp_path / "int8.onnx").graph.input[0].type.tensor_type.shape
    assert [d.dim_value for d in shape.dim] == [4, 256]
    assert main(["convert", str(source), str(tmp_path / "other"), "--rows", "4"]) != 0
