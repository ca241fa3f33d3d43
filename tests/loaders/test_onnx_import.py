"""ONNX models are read, run as in onnxruntime, become networks, and are refused where they cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

import volumetric
from tests.devices import DEVICES, device
from tests.loaders.onnx_files import image_model, model_of, saved, text_model
from volumetric.analysis import predict
from volumetric.base.errors import CheckpointError, ShapeError, SpecError, UnsupportedError
from volumetric.cli import main
from volumetric.loaders import load_onnx, onnx_network, open_model, save_native
from volumetric.loaders.onnx_import.onnx_declaration import OperatorGraph
from volumetric.loaders.onnx_import.read_onnx import read_model, read_onnx
from volumetric.loaders.onnx_import.run_onnx import OnnxModel
from volumetric.train import TrainConfig, train

DRAWS = np.random.default_rng(3)
IMAGES = DRAWS.normal(0, 1, (5, 1, 8, 8)).astype(np.float32)


def onnxruntime_of(path: Path, inputs: dict[str, Any]) -> list[Any]:
    return onnxruntime.InferenceSession(str(path)).run(None, inputs)


@pytest.mark.parametrize("name", DEVICES)
def test_an_image_model_runs_at_any_batch_size(name: str, tmp_path: Path) -> None:
    path = saved(image_model(), tmp_path / "image.onnx")
    model = load_onnx(path, device(name))
    for count in (1, 5):
        [expected] = onnxruntime_of(path, {"x": IMAGES[:count]})
        np.testing.assert_allclose(model(IMAGES[:count]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", DEVICES)
def test_a_text_model_runs_at_any_length(name: str, tmp_path: Path) -> None:
    path = saved(text_model(), tmp_path / "text.onnx")
    with load_onnx(path, device(name)) as model:
        for length in (3, 6):
            ids = DRAWS.integers(0, 11, (2, length))
            mask = np.ones_like(ids)
            mask[1, 2:] = 0
            outputs = model.run({"ids": ids, "mask": mask})
            y, best = onnxruntime_of(path, {"ids": ids, "mask": mask})
            np.testing.assert_allclose(outputs["y"], y, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(outputs["best"], best)
            assert outputs["best"].dtype == np.int64


def test_load_opens_onnx_files(tmp_path: Path) -> None:
    path = saved(image_model(), tmp_path / "image.onnx")
    model = volumetric.load(path, "reference")
    assert isinstance(model, OnnxModel)
    assert model.inputs == ("x",)
    assert model.size == 36 + 4 + 192 + 3
    assert "x → y" in repr(model)


def test_a_branch_depends_on_an_input(tmp_path: Path) -> None:
    def branch(name: str, op: str) -> Any:
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [out])

    nodes = [
        helper.make_node("Equal", ["rate", "sixteen"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "Exp"), else_branch=branch("b", "Neg")),
    ]
    inputs: dict[str, tuple[str, list[int | str]]] = {"x": ("float32", [2]), "rate": ("int64", [])}
    model = model_of(nodes, inputs, ["y"], {"sixteen": np.array(16)})
    opened = load_onnx(saved(model, tmp_path / "if.onnx"), "reference")
    x = np.array([0.5, -1.0], np.float32)
    np.testing.assert_allclose(opened(x, 16), np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(opened(x, 8), -x)


def test_weights_behind_dequantize_are_decoded_once(tmp_path: Path) -> None:
    codes = DRAWS.integers(-8, 8, (4, 3)).astype(np.int8)
    scale = np.array([0.5, 0.25, 2.0], np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scale"], ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    model = model_of(nodes, {"x": ("float32", ["n", 4])}, ["y"], {"codes": codes, "scale": scale})
    read = read_model(model, tmp_path)
    assert [node.op for node in read.graph.nodes] == ["MatMul"]
    np.testing.assert_array_equal(read.arrays["w"], codes * scale)


def test_integer_products_are_exact(tmp_path: Path) -> None:
    a, b = DRAWS.integers(0, 256, (5, 70)).astype(np.uint8), DRAWS.integers(0, 256, (70, 3)).astype(np.uint8)
    nodes = [helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])]
    inputs: dict[str, tuple[str, list[int | str]]] = {"a": ("uint8", ["n", 70])}
    arrays = {"b": b, "za": np.uint8(7), "zb": np.uint8(99)}
    model = OnnxModel(read_model(model_of(nodes, inputs, ["y"], arrays), tmp_path), "reference")
    np.testing.assert_array_equal(model(a), (a.astype(int) - 7) @ (b.astype(int) - 99))


@pytest.mark.parametrize("name", ["reference", pytest.param("cpu", marks=pytest.mark.thorough)])
def test_a_file_becomes_a_network_that_trains(name: str, tmp_path: Path) -> None:
    path = saved(image_model(), tmp_path / "image.onnx")
    network, params = onnx_network(path)
    [expected] = onnxruntime_of(path, {"x": IMAGES})
    opened = device(name)
    np.testing.assert_allclose(predict(network, params, IMAGES, device=opened), expected, rtol=1e-5, atol=1e-5)
    result = train(network, params, (IMAGES, expected + 1), TrainConfig(epochs=20), device=opened)
    assert result.history[-1].loss < result.history[0].loss / 2


def test_gradients_are_those_of_differences(tmp_path: Path) -> None:
    """Of the whole layer, in float64: the graph's gradient against central differences."""
    from volumetric.graph.build import GraphBuilder
    from volumetric.graph.differentiate import differentiate
    from volumetric.graph.interpret import interpret
    from volumetric.layers.emit_scope import Scope

    network, params = onnx_network(saved(image_model(), tmp_path / "image.onnx"))
    [layer] = network.layers.values()
    work = GraphBuilder()
    arrays = {key.split("/", 1)[1]: store.values().astype(np.float64) for key, store in params.items()}
    x = work.input("x", (2, 1, 8, 8))
    scope = Scope(work=work, param=work.stored_tensor, path="0")
    total = work.reduce(work.unary(layer.emit(scope, x), "square"), "sum", (0, 1))
    keys = [work.stored_tensor(name, a.shape) for name, a in arrays.items()]
    gradients = differentiate(work, {total: work.constant(np.ones((1, 1)))}, keys)
    graph = work.finish([total, *(gradients[i] for i in keys)])
    first = IMAGES[:2].astype(np.float64)
    _, *slopes = interpret(graph, [first], dict(arrays), np.float64)
    for (name, array), slope in zip(arrays.items(), slopes, strict=True):
        at = tuple(n // 2 for n in array.shape)
        ends: list[float] = []
        for step in (1e-5, -1e-5):
            moved = array.copy()
            moved[at] += step
            ends.append(float(interpret(graph, [first], {**arrays, name: moved}, np.float64)[0].item()))
        assert slope[at] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)


def test_a_network_of_onnx_is_saved_and_quantised(tmp_path: Path) -> None:
    path = saved(image_model(), tmp_path / "image.onnx")
    network, params = onnx_network(path)
    save_native(tmp_path / "native", network, params)
    again = open_model(tmp_path / "native")
    assert again.network == network
    assert isinstance(again.network.layers[next(iter(again.network.layers))].graph, OperatorGraph)  # pyright: ignore[reportAttributeAccessIssue]
    quantised = open_model(path, dtype="int8:row")
    [expected] = onnxruntime_of(path, {"x": IMAGES})
    y = predict(quantised.network, quantised.params, IMAGES, device="reference")
    assert 0 < np.abs(y - expected).max() < 0.1


def sums_of_rows() -> ModelProto:
    """A Scan over the rows, as exporters write a recurrent layer of their own."""
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "r"], ["t"]), helper.make_node("Identity", ["t"], ["u"])],
        "step",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("s", "r")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("t", "u")],
    )
    scan = helper.make_node("Scan", ["zero", "x"], ["last", "y"], num_scan_inputs=1, body=body)
    return model_of([scan], {"x": ("float32", ["n", 3])}, ["y"], {"zero": np.zeros(3, np.float32)})


def test_a_loop_over_rows_is_refused_with_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(sums_of_rows(), tmp_path / "sums.onnx")
    x = np.ones((4, 3), np.float32)
    np.testing.assert_allclose(load_onnx(path, "reference")(x), np.cumsum(x, 0))
    with pytest.raises(UnsupportedError, match=r"Scan.*a scan of more than 4096 steps") as refused:
        load_onnx(path, "reference")(np.ones((5000, 3), np.float32))
    assert "pass inputs of 4096 rows or fewer" in str(refused.value.hint)
    assert main(["convert", str(path), str(tmp_path / "native")]) == 0
    np.save(tmp_path / "x.npy", x)
    assert main(["run", str(tmp_path / "native"), "--in", str(tmp_path / "x.npy"), "--device", "reference"]) == 1
    err = capsys.readouterr().err
    assert "has a loop, as of an LSTM or a Scan" in err
    assert "this layer takes any number of rows" in err
    assert "volumetric run MODEL.onnx" in err


def test_open_sizes_of_a_network_are_asked_for(tmp_path: Path) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"])]
    model = saved(model_of(nodes, {"x": ("float32", ["n", "t"])}, ["y"], {}), tmp_path / "open.onnx")
    with pytest.raises(ShapeError, match="a network needs its sizes"):
        onnx_network(model)
    network, _ = onnx_network(model, {"x": (4,)})
    assert network.input_shape == (4,)


def test_the_command_line_reads_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(image_model(), tmp_path / "image.onnx")
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "float32 [n, 1, 8, 8]" in shown
    assert "Conv 1" in shown
    np.savez(tmp_path / "x.npz", x=IMAGES)
    out = tmp_path / "y.npz"
    assert main(["run", str(path), "--in", str(tmp_path / "x.npz"), "--device", "reference", "-o", str(out)]) == 0
    [expected] = onnxruntime_of(path, {"x": IMAGES})
    np.testing.assert_allclose(np.load(out)["y"], expected, rtol=1e-5, atol=1e-5)
    (tmp_path / "x.jsonl").write_text(json.dumps(IMAGES[:1].tolist()) + "\n")
    assert main(["run", str(path), "--in", str(tmp_path / "x.jsonl"), "--device", "reference"]) == 0
    np.testing.assert_allclose(json.loads(capsys.readouterr().out), expected[:1], rtol=1e-5, atol=1e-5)
    assert main(["bench", str(path), "--device", "reference", "-r", "1"]) == 0
    assert "x 1×1×8×8" in capsys.readouterr().out
    assert main(["run", str(path), "--ticks", "3"]) == 2


def test_all_operators_that_are_not_supported_are_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("GridSample", ["x", "x"], ["a"]),
        helper.make_node("RandomUniformLike", ["x"], ["b"]),
        helper.make_node("RandomUniformLike", ["b"], ["y"]),
    ]
    path = saved(model_of(nodes, {"x": ("float32", [1])}, ["y"], {}), tmp_path / "odd.onnx")
    with pytest.raises(UnsupportedError, match=r"2 of its 2 operators .*: GridSample \(1\), RandomUniformLike \(2\)"):
        read_onnx(path)


def test_a_shape_that_depends_on_data_is_refused() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    model = model_of(nodes, {"x": ("float32", [5000])}, ["y"], {}, kinds={"y": "int64"})
    opened = OnnxModel(read_model(model, Path()), "reference")
    with pytest.raises(UnsupportedError, match="depends on the elements of x"):
        opened(np.zeros(5000))


def test_wrong_inputs_are_explained(tmp_path: Path) -> None:
    model = load_onnx(saved(text_model(), tmp_path / "text.onnx"), "reference")
    ids = np.zeros((1, 3), int)
    with pytest.raises(SpecError, match="has no input 'idz'"):
        model(idz=ids)
    with pytest.raises(SpecError, match="needs the input 'mask'"):
        model(ids)
    with pytest.raises(ShapeError, match=r"needs shape \[n, t\], got \[3\]"):
        model(ids[0], ids)
    with pytest.raises(ShapeError, match="with fractions"):
        model(ids + 0.5, ids)
    with pytest.raises(ShapeError, match="beyond 32 bits"):
        model(ids + 2**40, ids)


@pytest.mark.parametrize("part", [0, 1, 40, 300, 900])
def test_a_truncated_file_is_refused(part: int, tmp_path: Path) -> None:
    whole = image_model().SerializeToString()
    path = tmp_path / "part.onnx"
    path.write_bytes(whole[:part])
    with pytest.raises((CheckpointError, UnsupportedError)):
        read_onnx(path)


def test_damaged_bytes_raise_no_other_errors(tmp_path: Path) -> None:
    whole = image_model().SerializeToString()
    draws = np.random.default_rng(0)
    path = tmp_path / "damaged.onnx"
    for _ in range(60):
        content = bytearray(whole)
        for at in draws.integers(0, len(whole), 4):
            content[at] = draws.integers(0, 256)
        path.write_bytes(bytes(content))
        try:
            load_onnx(path, "reference").run({"x": IMAGES[:1]})
        except volumetric.VolumetricError:
            continue


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", ""])
def test_arrays_stay_in_the_directory_of_the_model(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (tmp_path / "inside").mkdir()
    model = external_model(location)
    path = tmp_path / "inside" / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match="outside the directory"):
        read_onnx(path)


def external_model(location: str) -> Any:
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"])], {"x": ("float32", [4])}, ["y"], {"w": np.zeros(4, np.float32)}
    )
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return model


def test_arrays_beside_the_model_are_read(tmp_path: Path) -> None:
    array = np.array([1, 2, 3, 4], np.float32)
    path = tmp_path / "model.onnx"
    path.write_bytes(external_model("data.bin").SerializeToString())
    with pytest.raises(CheckpointError, match="is missing"):
        read_onnx(path)
    (tmp_path / "data.bin").write_bytes(array.tobytes()[:12])
    with pytest.raises(CheckpointError, match="needs 16 bytes"):
        read_onnx(path)
    (tmp_path / "data.bin").write_bytes(array.tobytes())
    np.testing.assert_array_equal(load_onnx(path, "reference")(np.ones(4)), array + 1)


def test_an_array_that_does_not_fit_its_shape_is_refused(tmp_path: Path) -> None:
    model = image_model()
    model.graph.initializer[0].dims[0] = 5
    save(model, str(tmp_path / "wrong.onnx"))
    with pytest.raises(CheckpointError, match="'w' does not fit its shape"):
        read_onnx(tmp_path / "wrong.onnx")
    assert numpy_helper.to_array(image_model().graph.initializer[0]).shape == (4, 1, 3, 3)
