"""The verb convert where types are chosen matrix by matrix."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from volumetric import initialise
from volumetric.builders import sequential
from volumetric.loaders import open_model, save_native
from volumetric.loaders.native_facts import NativeFacts


def test_types_by_budget_and_by_name(run, letters, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abcdefghijklmnopqrstuvwxyz" * 20)
    code, out, err = run("convert", letters, str(tmp_path / "mixed"), "--bits", "9.5", "--calibrate", str(text))
    assert code == 0, err
    assert "damage, nats" in out
    assert "as it was" in out
    told = json.loads(run("inspect", str(tmp_path / "mixed"), "--json")[1])
    assert told["bits_per_weight"] <= 9.5
    assert any("damage" in tensor for tensor in told["tensors"])
    assert "damage, nats" in run("inspect", str(tmp_path / "mixed"), "--tensors")[1]
    for wrong in (["--bits", "6"], ["--bits", "6", "--dtype", "int4"], ["--bits", "0"], ["--tensor-type", "int4"]):
        assert run("convert", letters, str(tmp_path / "none"), *wrong)[0] == 2
    assert run("convert", letters, str(tmp_path / "some"), "--tensor-type", "*/weight=int8")[0] == 0
    assert "int8:g32" in run("inspect", str(tmp_path / "some"), "--tensors")[1]
    assert not (tmp_path / "none").exists()


@pytest.fixture
def small(tmp_path):
    """Write a network of no family under a name and seed."""

    def write(name: str, seed: int = 0, **facts) -> str:
        network = sequential(2, 1, hidden=(3,))
        save_native(tmp_path / name, network, initialise(network, seed), facts=NativeFacts(**facts))
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("name", ["sub", "sub/deeper", "net.onnx", "../a/sub"])
def test_no_model_is_written_inside_the_one_that_is_read(run, small, tmp_path, name):
    a, b = small("a"), small("b")
    files = sorted(tmp_path.rglob("*"))
    for call in (["convert", a, f"{a}/{name}"], ["merge", b, a, f"{a}/{name}"]):
        code, out, err = run(*call, "--overwrite")
        assert (code, out) == (1, "")
        assert f"is inside {a}, the directory of the model that is read" in err
        assert "outside that directory" in err
    assert sorted(tmp_path.rglob("*")) == files
    assert run("convert", a, f"{a}-next")[0] == 0


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("out.ort", "onnxruntime"),
        ("out.tflite", "TensorFlow"),
        ("out.ONNX", "file in the format onnx must have a name that ends in .onnx"),
        ("out.pt", "PyTorch"),
        ("out.npy", "NumPy"),
        ("out.GGUF", "ends in .gguf"),
    ],
)
def test_names_that_ask_for_another_format_are_refused(run, small, tmp_path, name, told):
    a, target = small("a"), tmp_path / name
    for call in (["convert", a, str(target)], ["merge", a, a, str(target)]):
        code, _, err = run(*call)
        assert (code, target.exists(), told in err) == (1, False, True), err
    assert run("convert", a, str(tmp_path / "of-1.5"))[0] == 0


def test_what_is_there_is_replaced_only_if_that_is_asked_for(run, small, tmp_path):
    a, b = small("a"), small("b", 1)
    before = (Path(a) / "weights.safetensors").read_bytes()
    for more in ((), ("--overwrite",)):
        code, _, err = run("convert", a, a, "--dtype", "int8", *more)
        assert (code, "is also the source" in err) == (1, True)
    assert "is also the source" in run("merge", a, b, b)[2]
    code, _, err = run("convert", b, a)
    assert (code, "exists and is not overwritten" in err, "--overwrite" in err) == (2, True, True)
    assert (Path(a) / "weights.safetensors").read_bytes() == before
    assert run("convert", b, a, "--overwrite")[0] == 0
    assert (Path(a) / "weights.safetensors").read_bytes() == (Path(b) / "weights.safetensors").read_bytes()


def test_two_native_models_merge_into_a_native_one(run, small, tmp_path, caplog):
    a, b = small("a"), small("b", 1)
    assert run("merge", a, b, str(tmp_path / "ab"), "--plain")[0] == 0
    merged, first, second = (open_model(path).params for path in (tmp_path / "ab", a, b))
    for key, store in merged.items():
        np.testing.assert_allclose(store.values(), (first[key].values() + second[key].values()) / 2, atol=1e-7)
    c = small("c", 2, classes=("yes",))
    code, _, err = run("merge", a, c, str(tmp_path / "ac"))
    assert (code, "have other class names" in err) == (1, True)
