"""The verb ``run``: streams of rows and ticks, on the reference device."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.rows import MACHINE, NETWORK, ON_REFERENCE, PARAMS, REFERENCE, X, lines, numbers, same, type_in, wanted
from volumetric import Clocked, Coord, Grid, Link, Network, Port
from volumetric.analysis.standardise import Standardisation
from volumetric.builders.sequential import chain
from volumetric.cli import main
from volumetric.layers import RNN, Embedding, MultiHeadAttention
from volumetric.loaders import save_native
from volumetric.loaders.native_checkpoint import NativeFacts
from volumetric.network import initialise
from volumetric.observe import Recording
from volumetric.program import Canvas, Edge, In, Out, Program, Region, Signal
from volumetric.run.streams import open_stream


@pytest.fixture
def plain(tmp_path: Path) -> str:
    save_native(tmp_path / "plain", NETWORK, PARAMS)
    return str(tmp_path / "plain")


@pytest.fixture
def ticking(tmp_path: Path) -> str:
    save_native(tmp_path / "ticking", NETWORK, PARAMS, clocked=MACHINE)
    return str(tmp_path / "ticking")


@pytest.mark.parametrize("form", ["jsonl", "stdin", "npz", "npz of one"])
def test_rows_become_lines(run, plain, tmp_path, monkeypatch, form):
    given = str(tmp_path / f"rows.{form[:5].strip()}")
    if form == "stdin":
        type_in(monkeypatch, lines(X[0]).rstrip(b"\n"))
        given = "-"
    elif form == "jsonl":
        Path(given).write_bytes(lines(X[0]).replace(b"\n", b"\n\n"))
    else:
        given = str(tmp_path / "rows.npz")
        np.savez(given, input=(X[0] if form == "npz of one" else X[:1]).astype(np.float64))
    code, out, err = run("run", plain, "--in", given, *ON_REFERENCE)
    assert (code, err) == (0, "")
    same(numbers(out), wanted(NETWORK, X[:1])[0])


def test_a_model_says_itself_whether_it_ticks(run, plain, ticking, tmp_path):
    np.savez(tmp_path / "x.npz", input=X)
    for model, flags, machine in (
        (ticking, (), MACHINE),
        (ticking, ("--no-clocked",), NETWORK),
        (plain, ("--clocked",), Clocked(network=NETWORK)),
    ):
        code, out, err = run("run", model, "--in", str(tmp_path / "x.npz"), *flags, *ON_REFERENCE)
        assert (code, err) == (0, "")
        same(numbers(out).swapaxes(0, 1), wanted(machine, X))


@pytest.mark.thorough
def test_ticks_go_on_where_rows_end(run, ticking, tmp_path):
    np.savez(tmp_path / "x.npz", input=X)
    target = tmp_path / "y.npz"
    arguments = ("--in", str(tmp_path / "x.npz"), "--per-row", "2", "--ticks", "66", "--out", str(target))
    code, out, err = run("run", ticking, *arguments, *ON_REFERENCE)
    assert (code, out) == (0, "")
    assert "206 ticks" in err
    stream: Any = open_stream(REFERENCE, MACHINE, PARAMS, batch=2)
    whole = np.concatenate([stream.run(X, per_row=2), stream.run(ticks=66)], 1)
    with np.load(target) as file:
        assert file.files == ["output"]
        same(file["output"], whole)
    code, out, _ = run("run", ticking, "--ticks", "3", "--quiet", *ON_REFERENCE)
    assert (code, len(out.splitlines())) == (0, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ticking", "x.npz", "y.npz"]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["plain", "ticking"])
def test_a_state_goes_on(run, request, tmp_path, kind):
    model, state = request.getfixturevalue(kind), tmp_path / "state.bin"
    whole = wanted(MACHINE if kind == "ticking" else NETWORK, X[:1])[0]
    found = []
    for part in (X[0, :0], X[0, :30], X[0, 30:30], X[0, 30:]):
        (tmp_path / "x.jsonl").write_bytes(lines(part))
        code, out, err = run("run", model, "--in", str(tmp_path / "x.jsonl"), "--state", str(state), *ON_REFERENCE)
        assert (code, err) == (0, "")
        found += [json.loads(line) for line in out.splitlines()]
    same(np.array(found, np.float32), whole)


def test_lines_of_many_streams_reset_and_have_names(run, tmp_path, monkeypatch):
    network = Network(
        grid=Grid(2),
        layers={Coord(0): Embedding(num_embeddings=5, embedding_dim=3), Coord(1): RNN(input_size=3, hidden_size=3)},
        links=(Link(kind="activation", source=Coord(1), target=Coord(1), combine="add", delay=1),),
        inputs={"push": Port(coord=Coord(1), shape=(3,), combine="add")},
        outputs={"first": Coord(0), "file": Coord(1)},
    )
    clocked, params = Clocked(network=network), initialise(network, seed=1)
    save_native(tmp_path / "m", network, params, clocked=clocked)
    ids, push = np.array([[1, 4, 2], [0, 3, 3]]), X[:, :3]
    given: list[dict[str, Any]] = [{"input": ids[:, t].tolist(), "push": push[:, t].tolist()} for t in range(3)]
    given[2]["reset"] = [False, True]
    given += [{"push": push[:, 0].tolist(), "input": [1, 1], "reset": True}, {"push": push[:, 1].tolist()}, {}]
    type_in(monkeypatch, "".join(f"{json.dumps(row)}\n" for row in given).encode())
    code, out, err = run("run", str(tmp_path / "m"), "--batch", "2", *ON_REFERENCE)
    assert (code, err) == (0, "")
    stream: Any = open_stream(REFERENCE, clocked, params, batch=2)
    whole: Any = [stream.run({"input": ids, "push": push}, resets=np.array([[0, 0, 0], [0, 0, 1]]))]
    whole += [stream.run({"input": ids[:, :1] * 0 + 1, "push": push[:, :1]}, resets=np.ones((2, 1)))]
    whole += [stream.run({"push": push[:, 1:2]}), stream.run(ticks=1)]
    sys.stdin.seek(0)
    target = tmp_path / "y.npz"
    assert run("run", str(tmp_path / "m"), "--batch", "2", "--out", str(target), *ON_REFERENCE)[0] == 0
    for name in network.taps:
        found = np.array([json.loads(line)[name] for line in out.splitlines()], np.float32)
        made = np.concatenate([part[name] for part in whole], 1)
        same(found, made.swapaxes(0, 1))
        with np.load(target) as file:
            same(file[name], made)


def test_resets_of_arrays(run, plain, tmp_path):
    marks = (np.arange(70) % 9 == 4).astype(bool)
    np.savez(tmp_path / "x.npz", input=X[0], reset=marks)
    _, out, _ = run("run", plain, "--in", str(tmp_path / "x.npz"), *ON_REFERENCE)
    same(numbers(out), wanted(NETWORK, X[:1], resets=marks[None].astype(int))[0])


def test_rows_are_standardised_as_in_training(run, tmp_path):
    scaling = Standardisation(mean=(1.0, 2.0, 3.0), deviation=(2.0, 1.0, 0.5))
    save_native(tmp_path / "m", NETWORK, PARAMS, facts=NativeFacts(inputs=scaling))
    np.savez(tmp_path / "x.npz", input=X)
    _, out, _ = run("run", str(tmp_path / "m"), "--in", str(tmp_path / "x.npz"), *ON_REFERENCE)
    same(numbers(out).swapaxes(0, 1), wanted(NETWORK, scaling.apply(X)))


def test_rows_and_outputs_of_a_program_go_by_ports(run, tmp_path, monkeypatch):
    regions = {"a": Region(((0, 1), (0, 1))), "b": Region(((0, 1), (1, 2)))}
    ports = {"x": In("a", 2), "go": Signal(), "y": Out("b", 2), "z": Out("a", 1)}
    network = Program(Canvas(1, (1, 2), 4, regions), [Edge("a", "b", when="on(go)")], ports).network()
    scaling = Standardisation(mean=(1.0, 2.0, 0.0), deviation=(2.0, 1.0, 1.0))
    save_native(tmp_path / "m", network, initialise(network, seed=1), facts=NativeFacts(inputs=scaling))
    want: Any = open_stream(REFERENCE, network, initialise(network, seed=1), batch=2).run(scaling.apply(X[:, :4]))
    x, go = X[:, :4, :2], X[:, :4, 2:]
    np.savez(tmp_path / "x.npz", x=x, go=go)
    arguments = ("run", str(tmp_path / "m"), *ON_REFERENCE)
    assert run(*arguments, "--in", str(tmp_path / "x.npz"), "-o", str(tmp_path / "y.npz"))[0] == 0
    with np.load(tmp_path / "y.npz") as made:
        assert list(made) == ["y", "z"]
        np.testing.assert_array_equal(np.concatenate([made["y"], made["z"]], 2), want)
    given = [{"x": row[:2].tolist(), "go": row[2:].tolist()} for row in X[0, :4]]
    text = "".join(f"{json.dumps(row)}\n" for row in given).encode()
    type_in(monkeypatch, text)
    code, out, _ = run(*arguments)
    found = [json.loads(line) for line in out.splitlines()]
    same([row["y"] + row["z"] for row in found], want[0])
    for odd, message in (
        (b'{"x": [1, 2]}\n', "input 'go' has no rows"),
        (b'{"x": [1], "go": [0]}\n', "expected [2], got [1]"),
        (b'{"q": [1]}\n', "no input 'q'"),
    ):
        type_in(monkeypatch, odd)
        code, _, err = run(*arguments)
        assert (code != 0, message in err) == (True, True)
    type_in(monkeypatch, text + lines(X[0, :1]))
    code, _, err = run(*arguments, "-o", str(tmp_path / "w.npz"))
    assert (code, "some rows are given by port" in err, (tmp_path / "w.npz").exists()) == (2, True, False)


def test_what_is_not_finite_goes_through(run, plain, monkeypatch):
    type_in(monkeypatch, b"[NaN, 1, 2]\n[1, 2, Infinity]\n" + b'{"input": [1, 2, 3], "reset": true}\n')
    code, out, _ = run("run", plain, *ON_REFERENCE)
    assert code == 0
    assert np.isnan(numbers(out)[0]).all()
    same(numbers(out)[2], wanted(NETWORK, np.array([[[1, 2, 3]]], np.float32))[0, 0])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[1, 2", "line 2 is not JSON"),
        (b"[" * 100_000, "line 2 is not JSON"),
        (b"\xff", "line 2 is not JSON"),
        (b"9" * 5000, "line 2"),
        (b"[1, 2]", "line 2: input 'input': expected [3], got [2]"),
        (b"[[1, 2, 3]]", "expected [3], got [1, 3]"),
        (b"[[1], 2, 3]", "line 2: input 'input' is ragged"),
        (b'["a", 2, 3]', "expected numbers, got text"),
        (b"[null, 2, 3]", "line 2: input 'input': expected numbers"),
        (b"true", "expected numbers, got true or false"),
        (b"[1e300, 2, 3]", "1e+300 does not fit in float32"),
        (b'{"inputs": [1, 2, 3]}', "line 2: the network has no input 'inputs'"),
        (b'{"reset": 2, "input": [1, 2, 3]}', 'line 2: "reset" must be true or false'),
        (b"[" + b" " * 1_200_000 + b"1, 2, 3]", "stdin has a line of more than 1,048,768 bytes"),
        (b'{"reset": [true, true], "input": [1, 2, 3]}', "must be true or false"),
    ],
)
def test_a_line_that_is_no_row_is_named(run, plain, tmp_path, monkeypatch, text, message):
    type_in(monkeypatch, b"[1, 2, 3]\n" + text + b"\n")
    code, out, err = run("run", plain, "--state", str(tmp_path / "s"), *ON_REFERENCE)
    assert code == 2
    same(numbers(out), wanted(NETWORK, np.array([[[1, 2, 3]]], np.float32))[0])
    assert message in err
    assert "hint: " in err
    assert not (tmp_path / "s").exists()


def test_arrays_that_do_not_fit_are_named(run, plain, ticking, tmp_path):
    path = tmp_path / "x.npz"
    for arrays, message in (
        ({"x": X}, "no input 'x'"),
        ({}, "has no rows"),
        ({"input": X[..., :2]}, "expected [T, 3] or [B, T, 3], got [2, 70, 2]"),
        ({"input": X[0, 0]}, "got [3]"),
        ({"input": X.astype(str)}, "got text"),
        ({"input": X[:0]}, "has no streams"),
        (
            {"input": X, "reset": np.zeros((2, 3))},
            "must have the same streams and rows, got input [2, 70], reset [2, 3]",
        ),
        ({"input": X, "reset": np.full((2, 70), 2)}, "must be 0 and 1"),
    ):
        np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]  (there is no array of that name)
        code, out, err = run("run", plain, "--in", str(path), *ON_REFERENCE)
        assert (code, out) == (2, "")
        assert message in err
    np.savez(path, input=X)
    assert "rows of 2 streams, --batch is 3" in run("run", plain, "--in", str(path), "--batch", "3")[2]
    path.write_bytes(path.read_bytes()[:100])
    code, _, err = run("run", plain, "--in", str(path), *ON_REFERENCE)
    assert (code, "x.npz" in err) == (1, True)
    code, _, err = run("run", plain, "--in", str(tmp_path / "none.npz"), *ON_REFERENCE)
    assert (code, "none.npz" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--in", "x.txt"), "must end in one of .npz, .npy, .csv, .parquet, .jsonl"),
        (("--in", "x.npz", "--header"), "--header applies only to .csv files"),
        (("--ticks", "0"), "--ticks must be 1 or more"),
        (("--ticks", "3"), "--ticks applies only to networks that run tick by tick"),
        (("--per-row", "2"), "--per-row applies only to networks"),
        (("--ticks", "1", "--batch", "-1"), "--batch must be"),
        (("--ticks", "1", "--out", "y.npy"), "must end in .npz"),
        (("--device", "tpu"), "--device"),
        (("--clocked", "--context", "9"), "--context applies only to networks that run row by row"),
    ],
)
def test_flags_that_make_no_sense(run, plain, monkeypatch, arguments, message):
    type_in(monkeypatch, b"")
    code, out, err = run("run", plain, *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_states_of_others_are_refused_and_stay(run, plain, ticking, tmp_path, monkeypatch):
    state = tmp_path / "s"
    assert run("run", ticking, "--ticks", "2", "--state", str(state), *ON_REFERENCE)[0] == 0
    saved = state.read_bytes()
    for model, flags in ((plain, ()), (ticking, ("--batch", "2")), (plain, ("--clocked",))):
        type_in(monkeypatch, b"")
        code, out, err = run("run", model, "--state", str(state), *flags, *ON_REFERENCE)
        assert (code, out) == (1, "")
        assert str(state) in err
        assert "another FILE" in err
    state.write_bytes(saved[:-1])
    assert run("run", ticking, "--ticks", "2", "--state", str(state), *ON_REFERENCE)[0] == 1
    assert state.read_bytes() == saved[:-1]
    code, _, err = run("run", ticking, "--ticks", "2", "--out", str(tmp_path / "no" / "y.npz"), *ON_REFERENCE)
    assert (code, "cannot write" in err) == (1, True)


@pytest.mark.thorough
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_rows_come_one_by_one_and_ctrl_c_keeps_the_state(ticking, tmp_path):
    state = tmp_path / "s"
    command = [sys.executable, "-m", "volumetric", "run", ticking, "--state", str(state), *ON_REFERENCE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        found = []
        for row in X[0, :3]:  # each line is answered before the next one is written
            child.stdin.write(lines(row[None]))
            child.stdin.flush()
            found.append(json.loads(child.stdout.readline()))
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 130
    whole = wanted(MACHINE, X[:1])[0]
    same(np.array(found, np.float32), whole[:3])
    stream: Any = open_stream(REFERENCE, MACHINE, PARAMS)
    stream.restore(state.read_bytes())
    same(stream.run(X[:1, 3:])[0], whole[3:])


def test_inspect_tells_how_a_model_ticks(run, plain, ticking):
    code, out, err = run("inspect", ticking, "--clocked", "--window", "10")
    assert (code, err) == (0, "")
    assert "1 layers do not run at every tick" in out
    assert "through 10 ticks" in out
    assert [line.split()[-1] for line in out.splitlines() if line.split()[:2] == ["input", "output"]][1:] == ["1"]
    told = json.loads(run("inspect", plain, "--clocked", "--checkpoint", "4", "--json")[1])
    assert told["clocked_json"] is False
    assert told["latency"] == {"input": {"output": 1}}
    assert told["state_bytes"] == 4 * (3 + 4 + 4 + 2)
    assert told["history"]["window"] == 64
    assert told["buckets"] == {"rows": {"buckets": 2, "layers": 2}}
    code, _, err = run("inspect", plain, "--clocked", "--window", "0")
    assert (code, "--window" in err) == (2, True)


def test_a_film_has_every_tick_and_changes_nothing(run, ticking, tmp_path, monkeypatch):
    np.savez(tmp_path / "x.npz", input=X[:, :5], reset=np.eye(5, dtype=np.int64)[[2, 4]])
    arguments = ("run", ticking, "--in", str(tmp_path / "x.npz"), "--per-row", "2", "--ticks", "3", *ON_REFERENCE)
    _, plainly, _ = run(*arguments)
    code, out, err = run(*arguments, "--record", str(tmp_path / "a.html"))
    assert code == 0
    assert "13 ticks drawn" in err
    same(numbers(out), numbers(plainly))
    stream: Any = open_stream(REFERENCE, MACHINE, PARAMS, batch=2)
    stream.run(X[:, :5], per_row=2, resets=np.eye(5)[[2, 4]])
    made = [stream.read(f"out/{c}/1") for c in NETWORK.layers]
    same(stream.activity(), [np.sqrt(np.square(y).mean()) for y in made])
    first_last = [np.sqrt(np.square(y[0]).mean()) for y in made]
    same(stream.activity(0), first_last)
    assert 'id="document"' in (tmp_path / "a.html").read_text()
    assert run(*arguments, "--record", str(tmp_path / "a.scope"))[0] == 0
    recording = Recording.open(tmp_path / "a.scope")
    assert len(recording) == 13
    np.testing.assert_allclose(recording.values()[9], first_last, rtol=0, atol=recording.scale.max() / 250)
    monkeypatch.setattr("volumetric.cli.run.MOST", 8)
    code, out, err = run(*arguments, "--record", str(tmp_path / "a.html"))
    assert "4 ticks drawn" in err
    assert "9 more do not fit" in err
    same(numbers(out), numbers(plainly))


def test_what_runs_row_by_row_is_recorded_too(run, plain, tmp_path):
    np.savez(tmp_path / "x.npz", input=X[:, :5], reset=np.eye(5, dtype=np.int64)[[2, 4]])
    arguments = ("run", plain, "--in", str(tmp_path / "x.npz"), *ON_REFERENCE)
    _, plainly, _ = run(*arguments, "--state", str(tmp_path / "plain.state"))
    code, out, err = run(*arguments, "--state", str(tmp_path / "a.state"), "--record", str(tmp_path / "a.scope"))
    assert code == 0
    assert "5 ticks drawn" in err
    same(numbers(out), numbers(plainly))
    assert (tmp_path / "a.state").read_bytes() == (tmp_path / "plain.state").read_bytes()
    assert len(Recording.open(tmp_path / "a.scope")) == 5
    assert "must end in one of .html, .gif, .scope" in run("run", plain, "--record", "a.png")[2]


def test_the_context_is_of_layers_that_look_back(run, tmp_path):
    network = chain([MultiHeadAttention(embed_dim=2, num_heads=1)], (2,))
    save_native(tmp_path / "m", network, initialise(network))
    np.savez(tmp_path / "x.npz", input=X[0, :5, :2])
    arguments = ("run", str(tmp_path / "m"), "--in", str(tmp_path / "x.npz"), *ON_REFERENCE, "--context")
    code, out, _ = run(*arguments, "5")
    assert (code, len(out.splitlines())) == (0, 5)
    code, _, err = run(*arguments, "4")
    assert (code, "do not fit its 4" in err) == (1, True)
    assert run(*arguments, "0")[0] == 1


def test_no_row_at_all_is_said(run, plain, monkeypatch):
    type_in(monkeypatch, b"")
    code, out, err = run("run", plain, *ON_REFERENCE)
    assert (code, out) == (0, "")
    assert "stdin had no rows: nothing was run" in err
    type_in(monkeypatch, b"[1, 2, 3]\n")
    assert "no row" not in run("run", plain, *ON_REFERENCE)[2]


@pytest.mark.parametrize(("encoding", "name"), [("utf-8", "grün"), ("ascii", "gr\\u00fcn"), ("latin-1", "gr\\u00fcn")])
def test_names_of_classes_are_text_where_stdout_can_encode_it(encoding, name, tmp_path, monkeypatch):
    save_native(tmp_path / "named", NETWORK, PARAMS, facts=NativeFacts(classes=("grün", "grün")))
    type_in(monkeypatch, b"[1, 2, 3]\n")
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    assert main(["run", str(tmp_path / "named"), *ON_REFERENCE]) == 0
    line = raw.getvalue().decode(encoding)
    assert f'"class": "{name}"' in line
    assert json.loads(line)["class"] == "grün"
