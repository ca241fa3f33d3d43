"""The verb train from end to end: every source of networks and samples, resuming, Ctrl-C, and files that are wrong."""

from __future__ import annotations

import csv
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from volumetric.builders import chain
from volumetric.cli import main
from volumetric.layers import RNN, Dense
from volumetric.loaders import open_model
from volumetric.loaders.peft import read_adapter
from volumetric.network import Network, initialise
from volumetric.train import (
    load_overlays,
)

ROOT = Path(volumetric.__file__).parents[1]
LLAMA = ROOT / "tests" / "fixtures" / "hf_tiny" / "llama"


@pytest.fixture
def run(capsys, tmp_path):
    def call(text: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
        path = tmp_path / "job.toml"
        path.write_text(text)
        code = main(["train", str(path), "--device", "reference", "--json", *arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else {}, err

    return call


def test_an_empty_file_trains_and_saves_a_model_and_a_history(run, tmp_path):
    code, told, err = run("")
    assert (code, told["reason"], told["updates"]) == (0, "epochs", 1)
    warning, *progress = err.splitlines()
    assert "names no samples, so the problem xor is learned" in warning
    assert progress[0].startswith("epoch 0: loss ")
    assert open_model(told["model"]).network.input_shape == (2,)
    lines = [json.loads(line) for line in (tmp_path / "job" / "history.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["step", "epoch", "stop"]
    assert len(list((tmp_path / "job" / "checkpoints").glob("*.npz"))) == 1


SPIRALS = """
seed = 4
[network]
options = { hidden = [24, 24], activation = "tanh" }
[data]
problem = "spirals"
options = { samples = 240, noise = 0.02 }
validation = 0.25
[train]
epochs = 60
optimiser = { kind = "adamw", lr = 0.02 }
schedule = { kind = "warmup", steps = 5, then = { kind = "cosine", steps = 400 } }
clip = 1.0
[history]
csv = true
"""


@pytest.mark.thorough
def test_classes_are_learned_and_judged_on_what_was_held_back(run, tmp_path):
    code, told, _ = run(SPIRALS)
    assert code == 0
    assert told["accuracy"] > 0.9
    assert told["validation_loss"] < 0.4
    with (tmp_path / "job" / "history.csv").open() as file:
        right = [float(row["accuracy"]) for row in csv.DictReader(file) if row["event"] == "epoch"]
    assert len(right) == 60
    assert right[0] < right[-1] > 0.9


def test_the_text_for_people_has_the_same_facts(tmp_path, capsys):
    (tmp_path / "a.toml").write_text(SPIRALS)
    assert main(["train", str(tmp_path / "a.toml"), "--set", "train.epochs=2", "--device", "reference"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("12 updates in 2 epochs (epochs), loss ")
    assert "best validation loss" in out
    assert "accuracy" in out
    assert out.endswith("747 parameters\n")


def test_a_run_goes_on_with_the_same_bits(run, tmp_path):
    whole = run(SPIRALS, "--set", "train.epochs=4", "--out", str(tmp_path / "whole"))[1]
    run(SPIRALS, "--set", "train.epochs=4", "--set", "train.max_steps=9", "--out", str(tmp_path / "parts"))
    code, _, err = run(SPIRALS, "--set", "train.epochs=4", "--out", str(tmp_path / "parts"))
    assert code == 2
    assert "parts already holds a run\nhint: --resume continues it, --out " in err
    parts = run(SPIRALS, "--set", "train.epochs=4", "--out", str(tmp_path / "parts"), "--resume")
    assert "resumed after update 9, in epoch 1" in parts[2]
    assert (parts[1]["loss"], parts[1]["accuracy"]) == (whole["loss"], whole["accuracy"])
    weights = "model/weights.safetensors"
    assert (tmp_path / "whole" / weights).read_bytes() == (tmp_path / "parts" / weights).read_bytes()


def test_arrays_images_and_a_file_of_their_own_for_validation(run, tmp_path):
    draw = np.random.default_rng(0)
    for name, count in (("train", 24), ("held", 8)):
        y = draw.integers(2, size=count)
        x = draw.normal(size=(count, 1, 6, 6)).astype(np.float32) + 2 * y[:, None, None, None]
        np.savez(tmp_path / f"{name}.npz", x=x.astype(np.float32), y=y)
    text = """
[network]
options = { channels = [3] }
[data]
npz = "train.npz"
inputs = "x"
targets = "y"
validation = "held.npz"
[train]
epochs = 40
dtype = "int8"
optimiser = { kind = "adamw", lr = 0.01 }
"""
    code, told, _ = run(text)
    assert (code, told["accuracy"]) == (0, 1.0)
    model = open_model(told["model"])
    assert "conv2d" in {spec.kind for spec in model.network.layers.values()}
    assert str(model.params["0.0.0.0/weight"].scheme) == "int8:g32"


@pytest.mark.thorough
def test_tables_with_classes_by_name(run, tmp_path):
    rows = ["length,kind,width", *(f"{i % 7},{'big' if i % 7 > 3 else 'small'},{i % 3}" for i in range(60))]
    (tmp_path / "flowers.csv").write_text("\n".join(rows) + "\n")
    table = '[data]\ncsv = "flowers.csv"\ncolumns = ["kind"]\nclasses = true\n'
    told = run(table + '[train]\nepochs = 80\noptimiser = {kind = "adamw", lr = 0.02}\n')[1]
    assert told["accuracy"] > 0.95
    told = run('[data]\ncsv = "flowers.csv"\ncolumns = ["width"]\n', "--out", str(tmp_path / "no"))
    assert told[0] == 1
    assert "line 2, column 'kind': 'small' is not a number" in told[2]


def test_features_of_any_size_are_standardised_and_the_model_does_so_too(run, tmp_path):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 2)) * [1000, 0.001] + [5000, 3]
    big = (x[:, 0] - 5000) / 1000 + (x[:, 1] - 3) / 0.001 > 0
    rows = [
        "a,b,kind",
        *(f"{float(a)!r},{float(b)!r},{'big' if k else 'small'}" for (a, b), k in zip(x, big, strict=True)),
    ]
    (tmp_path / "sizes.csv").write_text("\n".join(rows) + "\n")
    text = """
[data]
csv = "sizes.csv"
classes = true
standardise = true
validation = 0.25
[train]
epochs = 40
optimiser = { kind = "adamw", lr = 0.02 }
"""
    told = run(text)[1]
    assert told["accuracy"] > 0.9
    with volumetric.load(told["model"], device="reference") as model:
        chosen = [model.classes[i] for i in model.predict(x).argmax(1)]
        assert np.mean([name == ("big" if k else "small") for name, k in zip(chosen, big, strict=True)]) > 0.9
        scaling = model.loaded.inputs
    # a model that goes on learning keeps its statistics and the order of its classes
    (tmp_path / "more.csv").write_text("\n".join([rows[0], *(row for row in rows if row.endswith("small"))]) + "\n")
    more = f'[network]\nmodel = "{told["model"]}"\n[data]\ncsv = "more.csv"\nclasses = true\n[train]\nepochs = 1\n'
    on = open_model(run(more, "--out", str(tmp_path / "on"))[1]["model"])
    assert (on.inputs, on.classes) == (scaling, ("big", "small"))
    code, _, err = run('[data]\nproblem = "parity"\nstandardise = true\n', "--out", str(tmp_path / "p"))
    assert code == 0, err


def test_bytes_of_text_make_a_model_that_generates(run, tmp_path, capsys):
    (tmp_path / "song.txt").write_text("lalelu" * 100)
    text = """
[network]
options = { width = 32, blocks = 1, heads = 2 }
[data]
text = "song.txt"
length = 20
stride = 7
batch_size = 8
[train]
epochs = 20
optimiser = { kind = "adamw", lr = 0.005 }
"""
    told = run(text)[1]
    assert told["loss"] < 0.3
    assert main(["generate", told["model"], "-p", "lalelulale", "-n", "5", "--device", "reference"]) == 0
    assert capsys.readouterr().out == "lulal\n"


def test_a_model_goes_on_learning_from_its_weights_with_overlays(run, tmp_path):
    (tmp_path / "ids.npz").write_bytes(b"")
    ids = np.arange(64).reshape(4, 16) % 90
    np.savez(tmp_path / "ids.npz", inputs=ids.astype(np.int32), targets=np.roll(ids, -1, 1).astype(np.int32))
    text = f"""
[network]
model = "{LLAMA}"
[data]
npz = "ids.npz"
[train]
epochs = 3
optimiser = {{ kind = "adamw", lr = 0.02 }}
overlay = {{ rank = 2, targets = ["*/q.weight", "*/v.weight"] }}
"""
    code, told, err = run(text)
    assert code == 0, err
    overlay, factors = load_overlays(tmp_path / "job" / "overlays.npz")
    assert overlay.rank == 2
    trained, before = open_model(told["model"]), open_model(LLAMA)
    changed = {k for k, s in trained.params.items() if not np.array_equal(s.values(), before.params[k].values())}
    assert changed == {key.partition(":")[0] for key in factors}
    adapter = tmp_path / "job" / "adapter"
    assert set(read_adapter(adapter, before).factors) == changed
    assert main(["convert", str(LLAMA), str(tmp_path / "merged"), "--lora", str(adapter)]) == 0
    for key, store in open_model(tmp_path / "merged").params.items():
        np.testing.assert_allclose(store.values(), trained.params[key].values(), rtol=1e-5, atol=1e-6)
    assert trained.tokenizer is not None or before.tokenizer is None


def test_a_network_from_a_file_of_structure(run, tmp_path):
    network = volumetric.Network(
        grid=volumetric.Grid(1),
        layers={volumetric.Coord(0): volumetric.layers.Dense(in_features=2, out_features=1)},
        input_shape=(2,),
        input_dtype="float32",
    )
    (tmp_path / "net.json").write_text(network.to_json())
    told = run('seed = 3\n[network]\nfile = "net.json"\n[train]\noptimiser = {kind = "sgd", lr = 0.0}\n')[1]
    trained = open_model(told["model"])
    assert trained.network == Network.from_json(network.to_json())
    expected = initialise(network, 3)["0.0.0.0/weight"].values()
    np.testing.assert_array_equal(trained.params["0.0.0.0/weight"].values(), expected)


def test_a_loss_of_ones_own(run, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "own_losses_of_a_test.py").write_text(
        "def squared(work, output, target):\n    return work.unary(work.binary('sub', output, target), 'square')\n"
    )
    own = run("[train]\nepochs = 3\nloss = 'own_losses_of_a_test:squared'\n", "--out", str(tmp_path / "own"))[1]
    named = run("[train]\nepochs = 3\nloss = 'mse'\n", "--out", str(tmp_path / "named"))[1]
    assert own["loss"] == pytest.approx(named["loss"], rel=1e-6)
    assert own["loss"] > 0


def test_sequences_of_rows_stay_sequences(run, tmp_path):
    network = chain([RNN(input_size=2, hidden_size=4), Dense(in_features=4, out_features=1)], (2,))
    (tmp_path / "net.json").write_text(network.to_json())
    x = np.random.default_rng(0).normal(size=(12, 5, 2)).astype(np.float32)
    np.savez(tmp_path / "sums.npz", inputs=x, targets=x.sum(2, keepdims=True).cumsum(1))
    text = '[network]\nfile = "net.json"\n[data]\nnpz = "sums.npz"\nvalidation = 0.25\n[train]\nepochs = 8\n'
    code, told, err = run(text, "--set", 'train.optimiser={kind="adamw", lr=0.05}')
    assert code == 0, err
    assert told["validation_loss"] < 2


def test_layers_can_be_watched(run, tmp_path, capsys):
    code, _, err = run("[observe]\njsonl = true\nlog = true\nhttp = 0\n", "--verbose")
    assert code == 0
    assert "statistics of the layers: http://127.0.0.1:" in err
    assert "forward 1 0.0.0.0 dense: min " in err
    lines = [json.loads(line) for line in (tmp_path / "job" / "layers.jsonl").read_text().splitlines()]
    assert [line["mode"] for line in lines] == ["forward", "forward", "backward", "backward"]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(err.partition("http://")[2].split()[0].join(["http://", ""]), timeout=2)


def test_a_run_whose_numbers_break_names_the_update_and_keeps_its_checkpoint(run, tmp_path):
    steps = 'train.schedule={kind="step", every=6, factor=1e300}'
    code, told, err = run(SPIRALS, "--set", steps, "--set", "train.checkpoint_every=2", "--set", "train.epochs=4")
    assert (code, told) == (1, {})
    assert "error: step 7: parameter 0.0.0.0/weight after the update is not finite" in err
    assert "step-0000000006.npz" in err
    assert not (tmp_path / "job" / "model").exists()
    assert (tmp_path / "job" / "checkpoints" / "step-0000000006.npz").is_file()
    assert '"reason": "diverged"' in (tmp_path / "job" / "history.jsonl").read_text()


def test_long_epochs_tell_of_every_tenth_of_the_run_off_a_terminal(run):
    long = '[data]\nproblem = "waves"\nbatch_size = 8\n[train]\nmax_steps = 40\n'
    err = run(long)[2].splitlines()
    assert [line.partition(":")[0] for line in err] == [f"update {step} of 40" for step in range(4, 41, 4)]
    assert all(line.endswith(" left") for line in err)


def test_accuracy_of_every_epoch_can_be_left_out_or_come_from_the_training_samples(run, tmp_path):
    text = '[data]\nproblem = "parity"\n[train]\nepochs = 2\n'
    assert ", accuracy " in run(text)[2]
    lines = [json.loads(line) for line in (tmp_path / "job" / "history.jsonl").read_text().splitlines()]
    told = [line["accuracy"] for line in lines if line["event"] == "epoch"]
    assert all(0 < right < 1 for right in told)
    assert "accuracy" not in run(text + "accuracy = false\n", "--out", str(tmp_path / "b"))[2]


@pytest.mark.thorough
def test_a_memory_task_is_learned_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '[data]\nproblem = "{}"\noptions = {{ samples = 16, length = {} }}\nvalidation = 0.25\n'
    for name, length in (("assoc_recall", 92), ("memory.parity", 50), ("sines", 40)):
        config = tmp_path / f"{name}.toml"
        config.write_text(
            text.format(name, length) + ("[network]\noptions = { width = 8, blocks = 1 }\n" * (name != "sines"))
        )
        assert main(["train", str(config), "--json", "--quiet", "--device", "cpu"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["updates"] == 1
        assert told["validation_loss"] is not None
    config.write_text('[data]\nproblem = "sines"\noptions = { samples = 2 }\nvalidation = 0.2\n')
    assert main(["train", str(config), "--out", str(tmp_path / "none")]) == 1
    assert "0.2 of 2 samples leaves no samples" in capsys.readouterr().err
