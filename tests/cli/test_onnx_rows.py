"""Tables and arrays through ONNX files, which keep the names of classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from volumetric.builders import sequential
from volumetric.loaders import open_model, save_native, save_onnx
from volumetric.loaders.native_checkpoint import NativeFacts
from volumetric.network import initialise


@pytest.fixture
def network():
    network = sequential(2, 3, hidden=(4,), activation="tanh")
    return network, initialise(network, seed=3)


def lines(out: str) -> list:
    return [json.loads(line) for line in out.splitlines()]


def test_a_table_and_an_array_give_the_lines_of_the_network(network, run):
    save_onnx("net.onnx", *network, classes=("a", "b", "c d"))
    save_native("net", *network, facts=NativeFacts(classes=("a", "b", "c d")))
    x = np.array([[0.5, -0.25], [2.0, 1.0], [-3.0, 0.5]], np.float32)
    np.save("x.npy", x)
    Path("x.csv").write_text("u,v\n0.5,-0.25\n2,1\n-3,0.5\n", "utf-8")
    code, expected, _ = run("run", "net", "--in", "x.npy", "--device", "reference")
    assert code == 0
    for source in ("x.npy", "x.csv"):
        code, out, _ = run("run", "net.onnx", "--in", source, "--device", "reference")
        assert code == 0
        assert [line["class"] for line in lines(out)] == [line["class"] for line in lines(expected)]
        np.testing.assert_allclose(
            [line["output"] for line in lines(out)], [line["output"] for line in lines(expected)], rtol=1e-5, atol=1e-6
        )


def test_a_network_of_a_file_has_its_classes(network):
    save_onnx("net.onnx", *network, classes=("a", "b", "c d"))
    assert open_model("net.onnx").classes == ("a", "b", "c d")
    save_onnx("plain.onnx", *network)
    assert open_model("plain.onnx").classes == ()


def test_other_files_are_refused(network, run):
    save_onnx("net.onnx", *network)
    Path("a.png").touch()
    code, _, err = run("run", "net.onnx", "--in", "a.png", "--device", "reference")
    assert code == 2
    assert "an ONNX model reads .npz, .jsonl, .csv, .parquet, .npy, got a.png" in err
