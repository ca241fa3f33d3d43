"""Networks as Python and C compute what the reference computes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples import FAMILIES
from volumetric import Coord, Network, Params, WeightStore, initialise
from volumetric.analysis import predict
from volumetric.base.errors import UnsupportedError
from volumetric.builders import cnn, sequential
from volumetric.codegen import MAX_WEIGHTS, save_c, save_python
from volumetric.formula.unary_functions import ACTIVATIONS
from volumetric.graph.interpret import Interpreter
from volumetric.layers import (
    GRU,
    LSTM,
    RNN,
    Dense,
    Embedding,
    LayerNorm,
    LayerSpec,
    MultiHeadAttention,
    RMSNorm,
    Softmax,
)
from volumetric.network.grid import Link, Port
from volumetric.run.graph.network_graph import graph_of
from volumetric.run.lower import lower

CC = shutil.which("cc")


def chain(*layers: LayerSpec, shape: tuple[int, ...] = (3,), dtype: Any = "float32") -> Network:
    return Network(layers=list(layers), input_shape=shape, input_dtype=dtype)


def drawn(network: Network, rng: np.random.Generator) -> Params:
    """Return parameters none of which has its value at the start; variances stay positive."""
    stores = {
        key: WeightStore.from_array((store.values() + rng.uniform(0.05, 0.3, store.shape)).astype(np.float32))
        for key, store in initialise(network, seed=2).items()
    }
    return Params(stores)


def run_source(path: Path, rows: np.ndarray) -> list[list[str]]:
    """Run a file of source code on rows, as its comment says, and return the words of its lines."""
    text = "".join(" ".join(map(repr, row.tolist())) + "\n" for row in rows)
    if path.suffix == ".py":
        command = [sys.executable, "-I", str(path)]
    else:
        program = path.with_suffix("")
        flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-but-set-variable"]
        subprocess.run([str(CC), *flags, str(path), "-o", str(program), "-lm"], check=True, capture_output=True)
        command = [str(program)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def computed(path: Path, network: Network, params: Params, rows: np.ndarray) -> np.ndarray:
    if path.suffix == ".c" and CC is None:
        pytest.skip("no C compiler")
    (save_python if path.suffix == ".py" else save_c)(path, network, params)
    return np.array(run_source(path, rows), np.float64)


NETWORKS: dict[str, Network] = {
    "perceptron": sequential(3, 2, hidden=(4, 5), activation="gelu"),
    "images": cnn((2, 6, 6), 3, norm="batch", pool="max", dropout=0.2),
    "norms": chain(LayerNorm(num_features=3), Dense(in_features=3, out_features=4), RMSNorm(num_features=4), Softmax()),
    "lstm": chain(LSTM(input_size=3, hidden_size=4), Dense(in_features=4, out_features=2)),
    "gru": chain(GRU(input_size=3, hidden_size=4), RNN(input_size=4, hidden_size=2)),
    "tokens": chain(Embedding(num_embeddings=7, embedding_dim=4), shape=(), dtype="int32"),
}


@pytest.mark.parametrize("ending", [".py", ".c"])
@pytest.mark.parametrize("name", NETWORKS)
def test_source_code_computes_what_the_reference_computes(
    name: str, ending: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    network = NETWORKS[name]
    params = drawn(network, rng)
    if network.input_dtype == "int32":
        x = rng.integers(7, size=(5,)).astype(np.int32)
    else:
        x = rng.standard_normal((5, *network.input_shape)).astype(np.float32)
    recurrent = name in ("lstm", "gru")  # its rows are one sequence
    expected = predict(network, params, x[None] if recurrent else x, device="reference").reshape(5, -1)
    np.testing.assert_allclose(
        computed(tmp_path / f"net{ending}", network, params, x.reshape(5, -1)), expected, atol=1e-6, rtol=1e-6
    )


@pytest.mark.parametrize("ending", [".py", ".c"])
def test_every_activation_follows_from_its_formula(ending: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """All activations side by side, with arguments that overflow what is not written with care."""
    names = [*ACTIVATIONS.own]
    wide = len(names)
    layers: dict[Coord, LayerSpec] = {Coord(0): Dense(in_features=1, out_features=1, bias=False)}
    params = {"0.0.0.0/weight": WeightStore.from_array(np.ones((1, 1), np.float32))}
    for i, name in enumerate(names, start=1):
        layers[Coord(i)] = Dense(in_features=1, out_features=1, bias=False, activation=name)
        params[f"{Coord(i)}/weight"] = WeightStore.from_array(np.ones((1, 1), np.float32))
    links = [Link(kind="activation", source=Coord(0), target=Coord(i), combine="replace") for i in range(2, wide + 1)]
    outputs = {name: Coord(i) for i, name in enumerate(names, start=1)}
    network = Network(layers=layers, links=links, outputs=outputs, input_shape=(1,), input_dtype="float32")
    rows = np.array([[-1e4], [-800.0], [-3.5], [-1e-8], [0.0], [0.3], [20.0], [900.0]], np.float32)
    expected = predict(network, Params(params), rows, device="reference", outputs=[*lower(network).outputs])
    order = [*lower(network).outputs]
    np.testing.assert_allclose(
        computed(tmp_path / f"net{ending}", network, Params(params), rows),
        np.concatenate([expected[name] for name in order], axis=-1),
        rtol=1e-6,
        atol=1e-6,
    )


def test_the_file_is_readable_and_stands_alone(tmp_path: Path) -> None:
    network = NETWORKS["lstm"]
    save_python(tmp_path / "net.py", network, initialise(network))
    text = (tmp_path / "net.py").read_text()
    assert re.findall(r"^(?:import|from) .*", text, re.MULTILINE) == ["import math"]
    assert "# lstm1 at 0.0.0.0: LSTM(input_size=3, hidden_size=4" in text
    scope: dict[str, Any] = {"__name__": "net"}
    exec(compile(text, "net.py", "exec"), scope)
    state = scope["State"]()
    first = scope["predict"]([0.1, 0.2, 0.3], state)
    assert scope["predict"]([0.1, 0.2, 0.3], state) != first
    assert scope["predict"]([0.1, 0.2, 0.3], scope["State"]()) == first
    with pytest.raises(ValueError, match="expected 3 numbers, got 2"):
        scope["predict"]([0.1, 0.2], state)
    save_c(tmp_path / "net.c", network, initialise(network))
    assert re.findall("#include <(.*)>", (tmp_path / "net.c").read_text()) == ["math.h", "stdio.h"]


@pytest.mark.parametrize("ending", [".py", ".c"])
def test_classes_are_printed_by_name(ending: str, tmp_path: Path) -> None:
    if ending == ".c" and CC is None:
        pytest.skip("no C compiler")
    network = chain(Dense(in_features=2, out_features=2, bias=False), shape=(2,))
    params = Params({"0.0.0.0/weight": WeightStore.from_array(np.eye(2, dtype=np.float32))})
    path = tmp_path / f"net{ending}"
    (save_python if ending == ".py" else save_c)(path, network, params, classes=('a"b\\', "größer"))
    words = run_source(path, np.array([[1.0, 0.0], [0.25, 3.0]]))
    assert words == [['a"b\\', "1", "0"], ["größer", "0.25", "3"]]


def test_wrong_rows_are_named(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    save_python(path, NETWORKS["perceptron"], initialise(NETWORKS["perceptron"]))
    done = subprocess.run([sys.executable, str(path)], input="1 2\n", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == "line 1: expected 3 numbers, got 2"


@pytest.mark.parametrize(
    ("network", "path", "message"),
    [
        (sequential(500, 401, hidden=()), "x.py", f"200,901 weights.*at most {MAX_WEIGHTS:,}"),
        (chain(MultiHeadAttention(embed_dim=4, num_heads=2), shape=(4,)), "x.c", "cannot be written as source code"),
        (NETWORKS["perceptron"], "x.txt", "must end in .py"),
    ],
)
def test_what_cannot_be_written_is_named(network: Network, path: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        (save_c if path == "x.c" else save_python)(tmp_path / path, network, initialise(network))
    assert caught.value.hint
    assert not any(tmp_path.iterdir())


REFUSED = "position_embedding|multi_head_attention|gumbel_softmax|operation (?:rope|entmax)"
"""What needs its position, all earlier rows, noise, or a sort."""


@pytest.mark.thorough
@pytest.mark.parametrize("family", range(len(FAMILIES)))
def test_every_kind_of_layer_is_written_or_refused_by_name(
    family: int, tmp_path: Path, rng: np.random.Generator
) -> None:
    number, refusals = 0, dict[str, str]()
    for name, (spec, shape) in ((n, case) for entry in FAMILIES[family].values() for n, case in entry.cases.items()):
        dtype = "int32" if isinstance(spec, Embedding) else "float32"
        network = chain(spec, shape=shape[1:], dtype=dtype)
        params = drawn(network, rng)
        try:
            save_python(tmp_path / "net.py", network, params)
        except UnsupportedError as error:
            refusals[name] = str(error)
            continue
        graph = graph_of(network, 1, resumes=True)
        reference = Interpreter(graph, np.float64)
        stored = {tensor.key: tensor.shape for tensor in graph.tensors if tensor.key}
        buffers = {
            key: params[key].values().astype(np.float64).reshape(shape) if key in params else np.zeros(shape)
            for key, shape in stored.items()
        }
        rows, results = [], []
        for _ in range(3):
            x = rng.integers(2, size=graph.tensors[graph.inputs[0]].shape)
            x = x.astype(np.int32) if dtype == "int32" else rng.standard_normal(x.shape)
            results.append(np.concatenate([y.ravel() for y in reference.run([x], buffers)]))
            rows.append(x.ravel())
        scope: dict[str, Any] = {"__name__": "net"}
        exec(compile((tmp_path / "net.py").read_text(), name, "exec"), scope)
        state = [scope["State"]()] if "State" in scope else []
        got = [scope["predict"](row.tolist(), *state) for row in rows]
        np.testing.assert_allclose(got, results, rtol=1e-6, atol=1e-6, err_msg=name)
        number += 1
        if CC and number % 5 == 1:
            got = computed(tmp_path / "net.c", network, params, np.array(rows))
            np.testing.assert_allclose(got, results, rtol=1e-6, atol=1e-6, err_msg=name)
    assert all(re.search(f"({REFUSED})", text) and "at 0.0.0.0" in text for text in refusals.values()), refusals


@pytest.mark.parametrize("ending", [".py", ".c"])
def test_named_inputs_and_outputs(ending: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """Inputs and outputs are in the order of the network, whatever their names mean in Python or C."""
    layers: dict[Coord, LayerSpec] = {
        Coord(0): Dense(in_features=3, out_features=4, activation="tanh"),
        Coord(1): Dense(in_features=4, out_features=4),
    }
    network = Network(
        layers=layers,
        inputs={"double": Port(coord=Coord(1), shape=(4,), dtype="float32", combine="add")},
        outputs={"while": Coord(0)},
        input_shape=(3,),
        input_dtype="float32",
    )
    params = drawn(network, rng)
    x, more = (rng.standard_normal((4, n)).astype(np.float32) for n in (3, 4))
    expected = predict(
        network, params, {"input": x, "double": more}, device="reference", outputs=[*lower(network).outputs]
    )
    got = computed(tmp_path / f"net{ending}", network, params, np.concatenate([x, more], axis=1))
    order = [*lower(network).outputs]
    assert [*lower(network).inputs] == ["input", "double"]
    np.testing.assert_allclose(got, np.concatenate([expected[name] for name in order], -1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("suffix", [".py", ".c"])
@pytest.mark.parametrize(
    ("text", "printed", "wrong"),
    [
        ("1,2\r\n\n 3\t4 \n\n5 6", 3, ""),
        ("1 2\n3\n4\n", 1, "line 2: expected 2 numbers, got 1"),
        ("1 2\n1 2 3\n", 1, "line 2: expected 2 numbers, got 3"),
        ("a b\n1 2\n", 0, "line 1: "),
        ("1 2\n3 4x\n", 1, "line 2: "),
    ],
)
def test_a_row_is_a_line(tmp_path: Path, suffix: str, text: str, printed: int, wrong: str) -> None:
    if suffix == ".c" and CC is None:
        pytest.skip("no C compiler")
    path = tmp_path / f"net{suffix}"
    network = sequential(2, 1, hidden=(2,))
    (save_python if suffix == ".py" else save_c)(path, network, initialise(network, seed=1))
    command = [sys.executable, "-I", str(path)]
    if suffix == ".c":
        subprocess.run([str(CC), str(path), "-o", str(path.with_suffix("")), "-lm"], check=True, capture_output=True)
        command = [str(path.with_suffix(""))]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (not wrong)
    assert len(done.stdout.splitlines()) == printed
    assert wrong in done.stderr
    assert "Traceback" not in done.stderr
