"""What a model learned from, a CSV file or arrays, runs through it: rows as it learned them, classes by name."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path

import numpy as np
import pytest

from tests.cli.rows import NETWORK, ON_REFERENCE, PARAMS
from volumetric import Coord, Grid, Network
from volumetric.builders import sequential
from volumetric.layers import Dense
from volumetric.loaders import save_native
from volumetric.network import initialise

RANDOM = np.random.default_rng(0)
X = (RANDOM.standard_normal((60, 3)) * [1, 10, 100] + [5, 0, 1]).round(4).astype(np.float32)
KINDS = ("ash", "birch", "cedar")
IDS = (X[:, 0] > 5).astype(int) + (X[:, 1] > 3)
TOML = """
device = "reference"
[data]
{data}
standardise = true
[train]
epochs = 30
optimiser = {{ kind = "adam", lr = 0.03 }}
"""


def write(path: Path, *columns: str, order: str = "abck", names: bool = True) -> Path:
    """Write the samples as a CSV file with its columns in an order."""
    cells = {**dict(zip("abc", X.T.astype(str), strict=True)), "k": [KINDS[i] for i in IDS]}
    lines = [",".join(order)] if names else []
    path.write_text("\n".join([*lines, *map(",".join, zip(*(cells[name] for name in order), strict=True))]) + "\n")
    return path


def learned(run, folder: Path, data: str) -> str:
    (folder / "job.toml").write_text(TOML.format(data=data))
    code, _, err = run("train", str(folder / "job.toml"), "--quiet")
    assert code == 0, err
    return str(folder / "job" / "model")


def judged(out: str) -> tuple[list[str], np.ndarray]:
    found = [json.loads(line) for line in out.splitlines()]
    return [row["class"] for row in found], np.array([row["output"] for row in found], np.float32)


def test_the_table_that_a_model_learned_from_runs_by_the_names_of_its_columns(run, tmp_path):
    write(tmp_path / "t.csv", order="akbc")
    model = learned(run, tmp_path, 'csv = "t.csv"\ncolumns = ["k"]\nclasses = true')
    code, out, err = run("run", model, "--in", str(tmp_path / "t.csv"), *ON_REFERENCE)
    assert (code, err) == (0, "")
    names, logits = judged(out)
    assert np.mean([name == KINDS[i] for name, i in zip(names, IDS, strict=True)]) > 0.9
    assert names == [KINDS[i] for i in logits.argmax(-1)]
    for order in ("cba", "kcab"):
        _, other, _ = run("run", model, "--in", str(write(tmp_path / "o.csv", order=order)), *ON_REFERENCE)
        assert other == out
    _, other, _ = run("run", model, "--in", str(write(tmp_path / "o.csv", order="abc", names=False)), *ON_REFERENCE)
    assert other == out
    code, out, err = run("run", model, "--in", str(write(tmp_path / "o.csv", order="abk")), *ON_REFERENCE)
    assert (code, out, "has no column 'c'; its columns are a, b, k" in err) == (1, "", True)


def test_a_table_without_names_runs_too_and_loses_no_row(run, tmp_path):
    write(tmp_path / "t.csv", names=False)
    model = learned(run, tmp_path, 'csv = "t.csv"\nclasses = true')
    code, out, err = run("run", model, "--in", str(tmp_path / "t.csv"), *ON_REFERENCE)
    assert (code, len(out.splitlines()), "has no header" in err) == (0, len(X), True)
    code, quiet, err = run("run", model, "--in", str(tmp_path / "t.csv"), "--no-header", *ON_REFERENCE)
    assert (code, quiet, err) == (0, out, "")


def test_arrays_that_training_reads_run_as_samples(run, tmp_path):
    np.savez(tmp_path / "t.npz", inputs=X, targets=IDS, mask=np.ones(len(X), np.float32))
    np.savez(tmp_path / "x.npz", input=X)
    model = learned(run, tmp_path, 'npz = "t.npz"')
    code, out, _ = run("run", model, "--in", str(tmp_path / "t.npz"), *ON_REFERENCE)
    assert code == 0
    names, logits = judged(out)
    rows, others = judged(run("run", model, "--in", str(tmp_path / "x.npz"), *ON_REFERENCE)[1])
    assert rows == names
    np.testing.assert_allclose(others, logits, rtol=0, atol=1e-5)  # products of more rows at a time
    assert np.mean([name == str(i) for name, i in zip(names, IDS, strict=True)]) > 0.9


def test_training_takes_the_names_of_run(run, tmp_path):
    np.savez(tmp_path / "t.npz", input=X, target=IDS)
    model = learned(run, tmp_path, 'npz = "t.npz"')
    code, out, _ = run("run", model, "--in", str(tmp_path / "t.npz"), *ON_REFERENCE)
    assert (code, len(judged(out)[0])) == (0, len(X))


def test_samples_begin_anew_and_rows_of_a_stream_do_not(run, tmp_path):
    save_native(tmp_path / "m", NETWORK, PARAMS)
    np.savez(tmp_path / "samples.npz", inputs=X[[0, 0]])
    np.savez(tmp_path / "stream.npz", input=X[[0, 0]])
    for name, same in (("samples", True), ("stream", False)):
        _, out, _ = run("run", str(tmp_path / "m"), "--in", str(tmp_path / f"{name}.npz"), *ON_REFERENCE)
        first, second = out.splitlines()
        assert (first == second) is same


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "has 2 columns, the network reads 3 numbers"),
        ("a,b,c\n1,2,x\n", "line 2, column 'c': 'x' is not a number"),
        ("a,b,c\n1,2\n", "line 2 has 2 values, but the first line has 3"),
        ("0,1,2\n3,4,5\n", "these may be column names or values"),
    ],
)
def test_tables_that_do_not_fit(run, tmp_path, text, message):
    network = Network(
        grid=Grid(1),
        layers={Coord(0): Dense(in_features=3, out_features=2)},
        input_shape=(3,),
        input_dtype="float32",
    )
    save_native(tmp_path / "m", network, initialise(network, seed=2))
    (tmp_path / "t.csv").write_text(text)
    code, out, err = run("run", str(tmp_path / "m"), "--in", str(tmp_path / "t.csv"), *ON_REFERENCE)
    assert code in (1, 2)
    assert (out, message in err) == ("", True)


def test_an_array_of_streams_is_run_as_streams(run):
    Path("points.csv").write_text("x,y,kind\n" + "".join(f"{i},{-i},{'ab'[i % 2]}\n" for i in range(20)))
    Path("points.toml").write_text('[data]\ncsv = "points.csv"\nclasses = true\n[train]\nepochs = 1\n')
    assert run("train", "points.toml", "--set", 'device="reference"')[0] == 0
    x = np.random.default_rng(0).normal(size=(2, 3, 2)).astype(np.float32)
    np.save("streams.npy", x)
    np.save("rows.npy", x.reshape(6, 2))
    outputs = []
    for name in ("streams", "rows"):
        code, _, err = run("run", "points/model", "--in", f"{name}.npy", "-o", f"{name}.npz", "--device", "reference")
        assert code == 0, err
        outputs.append(np.load(f"{name}.npz")["output"])
    np.testing.assert_allclose(outputs[0].reshape(6, 2), outputs[1].reshape(6, 2), rtol=1e-6)


@pytest.mark.parametrize("text", ["0.5,-0.25\n2,1\n", "v,u\n0.5,-0.25\n2,1\n", "v;u\r\n0,5;-0,25\r\n2;1"])
def test_a_table_on_stdin_runs_like_a_file(run, text, monkeypatch):
    network = sequential(2, 1)
    save_native("net", network, initialise(network, seed=0))
    code, expected, _ = fed(run, monkeypatch, b"[0.5, -0.25]\n[2, 1]\n")
    assert code == 0
    assert len(expected.splitlines()) == 2
    code, out, err = fed(run, monkeypatch, text.encode())
    assert (code, out) == (0, expected), err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"u,v\n1,oak\n", "stdin: line 2, column 'v': 'oak' is not a number"),
        (b"u,v,w\n1,2,3\n", "stdin has 3 columns, the network reads 2 numbers"),
        (b"u,v\n1,\xff\n", "stdin is no CSV table"),
        (b"oak\n", "stdin, line 1 is not JSON"),
        (b"[1, 2\n", "stdin, line 1 is not JSON"),
        (b"\x93NUMPY\x01\x00", "save it to a file: --in FILE.npy"),
    ],
)
def test_other_text_on_stdin_is_refused(run, text, message, monkeypatch):
    network = sequential(2, 1)
    save_native("net", network, initialise(network, seed=0))
    code, out, err = fed(run, monkeypatch, text)
    assert code in (1, 2)
    assert not out
    assert message in err


def fed(run, monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    return run("run", "net", "--device", "reference")


def test_a_folder_gives_the_file_of_each_line(run):
    network = sequential(8, 2)
    save_native("net", network, initialise(network, seed=0))
    Path("sounds/deep").mkdir(parents=True)
    for name in ("b", "a", "deep/c"):
        with wave.open(f"sounds/{name}.wav", "wb") as file:
            file.setparams((1, 2, 4000, 0, "NONE", ""))
            file.writeframes(np.arange(8, dtype="<i2").tobytes())
    code, out, err = run("run", "net", "--in", "sounds", "--device", "reference")
    assert code == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert [Path(line["file"]) for line in lines] == [Path("sounds", f"{name}.wav") for name in ("a", "b", "deep/c")]
    assert all(len(line["output"]) == 2 for line in lines)
    code, out, _ = run("run", "net", "--in", "sounds/a.wav", "--device", "reference")
    assert json.loads(out) == lines[0]["output"]
