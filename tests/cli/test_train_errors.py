"""What is wrong in a file of a run is named, and a run that is interrupted goes on."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_train import ROOT, SPIRALS
from volumetric.base.errors import SpecError
from volumetric.base.progress import clock
from volumetric.cli import main
from volumetric.cli.training_progress import TrainingProgress
from volumetric.loaders import open_model
from volumetric.train import (
    L1,
    Adam,
    Cosine,
    CrossEntropy,
    EpochEvent,
    Linear,
    LowRank,
    Momentum,
    StepEvent,
    WarmUp,
)
from volumetric.train.settings import RunSettings, read_settings

BAD: dict[str, tuple[str, str, str]] = {
    "not TOML": ("seed = = 1", "not valid TOML", ""),
    "section": ("[trian]", "unknown key 'trian'", "did you mean 'train'?"),
    "key": ("[train]\nepoch = 3", "[train]: unknown key 'epoch'", "did you mean 'epochs'?"),
    "data key": ("[data]\nbatchsize = 3", "[data]: unknown key 'batchsize'", "did you mean 'batch_size'?"),
    "type": ("[train]\nepochs = 'many'", "[train] epochs: Expected `int`, got `str`", ""),
    "whole number": ("[train]\nepochs = 1.5", "[train] epochs", ""),
    "value": ("[train]\nepochs = 0", "[train] epochs must be at least 1", ""),
    "table": ("train = 3", "[train]: expected a table", ""),
    "optimiser": ("[train]\noptimiser = 'adamx'", "unknown kind 'adamx'", "did you mean 'adam"),
    "optimiser key": (
        "[train.optimiser]\nkind = 'sgd'\nweight_deca = 1.0",
        "[train] optimiser: unknown key 'weight_deca'",
        "weight_decay",
    ),
    "no kind": ("[train.optimiser]\nlr = 1.0", "expected a name or a table with a kind", "sgd"),
    "lr": ("[train.optimiser]\nkind = 'sgd'\nlr = -1.0", "lr must be 0.0 or more", ""),
    "loss": ("[train]\nloss = 'rmse'", "unknown kind 'rmse'", "did you mean 'mse'?"),
    "own loss": ("[train]\nloss = 'nowhere_at_all:f'", "loss = 'nowhere_at_all:f': no module named", ""),
    "schedule": ("[train]\nschedule = {kind = 'cosine'}", "[train] schedule: steps must be given", ""),
    "dtype": ("[train]\ndtype = 'int9'", "int9", ""),
    "overlay": ("[train]\noverlay = {rank = 0}", "rank must be at least 1", ""),
    "builder": ("[network]\nbuilder = 'sequental'", "unknown kind 'sequental'", "did you mean 'sequential'?"),
    "builder key": ("[network]\noptions = {width = 3, hiden = [2]}", "unknown key 'width'", "one of"),
    "activation": (
        "[network]\noptions = {activation = 'rel'}",
        "[network] builder: unknown activation 'rel'",
        "did you mean 'relu'?",
    ),
    "two networks": ("[network]\nfile = 'a'\nmodel = 'b'", "file and model exclude each other", ""),
    "no file": ("[network]\nfile = 'no.json'", "no.json: No such file", ""),
    "two sources": ("[data]\ncsv = 'a'\nnpz = 'b'", "npz and csv exclude each other", ""),
    "problem": ("[data]\nproblem = 'spiral'", "unknown kind 'spiral'", "did you mean 'spirals'?"),
    "problem key": ("[data]\noptions = {bits = 3}", "unknown key 'bits'", ""),
    "no npz": ("[data]\nnpz = 'no.npz'", "cannot read", ""),
    "no csv": ("[data]\ncsv = 'no.csv'", "cannot read", ""),
    "no text": ("[data]\ntext = 'no.txt'", "cannot read", ""),
    "fraction": ("[data]\nvalidation = 1.5", "fraction in 0 … 1", ""),
    "file of a problem": ("[data]\nvalidation = 'x'", "a problem cannot use a validation file", "fraction"),
    "split": ("[data]\nvalidation = 0.01", "leaves 0 of 4 samples", ""),
    "patience": ("[train]\npatience = 3", "patience needs validation data", "validation"),
    "device": ("device = 'tpu'", "tpu", ""),
    "npz that is none": ("[data]\nnpz = 'bad.toml'", "is not an .npz file", "numpy.savez"),
    "missing npz": ("[data]\nnpz = 'no.npz'", "No such file", "there is no 'no.npz' in "),
    "shape": ("[network]\noptions = {inputs = 3}", "the network reads rows of shape [3]", ""),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("text", "message", "hint"), BAD.values(), ids=BAD)
def test_a_wrong_file_is_named_with_advice(text, message, hint, tmp_path, capsys):
    (tmp_path / "bad.toml").write_text(text)
    device = [] if "device" in text else ["--device", "reference"]
    code = main(["train", str(tmp_path / "bad.toml"), *device])
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    error, *advice = (line for line in err.splitlines() if not line.startswith("warning: [data] names no samples"))
    assert message in error
    assert hint in "".join(advice)
    assert not list(tmp_path.glob("bad/model"))


def test_wrong_usage_is_code_2_and_no_file_is_code_1(tmp_path, capsys):
    (tmp_path / "a.toml").write_text("")
    assert main(["train"]) == 2
    assert main(["train", str(tmp_path / "a.toml"), "--set", "epochs"]) == 2
    assert main(["train", str(tmp_path / "a.toml"), "--sett", "a=1"]) == 2
    assert main(["train", str(tmp_path / "no.toml")]) == 1
    assert main(["train", str(tmp_path / "a.toml"), "--set", "train.epochs=1", "--set", "train.epochs.x=1"]) == 1


def test_settings_become_values(tmp_path):
    (tmp_path / "a.toml").write_text(SPIRALS)
    run = read_settings(tmp_path / "a.toml", {"train.loss": "cross_entropy", "train.overlay": {"rank": 3}})
    assert run.train.schedule == WarmUp(steps=5, then=Cosine(steps=400))
    assert (run.train.loss, run.train.overlay, run.loss_given) == (CrossEntropy(), LowRank(rank=3), True)
    assert (run.name, run.directory, run.seed) == ("a", Path("a"), 4)
    assert read_settings(tmp_path / "a.toml", {"train.optimiser": "momentum"}).train.optimiser == Momentum()
    short = {"train.optimiser": {"kind": "adam", "lr": 0.1}, "train.loss": "mae", "train.schedule": {"kind": "linear"}}
    train = read_settings(tmp_path / "a.toml", {**short, "train.schedule.steps": 9}).train
    assert (train.optimiser, train.loss, train.schedule) == (Adam(lr=0.1), L1(), Linear(steps=9))
    (tmp_path / "empty.toml").write_text("")
    assert read_settings(tmp_path / "empty.toml") == RunSettings(name="empty", home=tmp_path)
    (tmp_path / "big.toml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(SpecError, match="more than"):
        read_settings(tmp_path / "big.toml")


LONG = """
[network]
options = { hidden = [64] }
[data]
problem = "waves"
batch_size = 4
[train]
epochs = 100000
checkpoint_every = 20
"""


@pytest.mark.thorough
def test_ctrl_c_keeps_a_checkpoint_and_the_run_goes_on(tmp_path):
    (tmp_path / "long.toml").write_text(LONG)
    command = [sys.executable, "-m", "volumetric", "train", str(tmp_path / "long.toml"), "--device", "reference"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    own = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler), "text": True}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **own) as p:
        assert p.stderr is not None
        assert p.stderr.readline().startswith("epoch 0")
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
    assert p.returncode == 130, err
    assert "stopping after this update" in err
    assert "(interrupted)" in out
    steps = int(out.split()[0])
    assert [f"step-{steps:010d}" in path.name for path in (tmp_path / "long" / "checkpoints").iterdir()].count(
        True
    ) == 1
    open_model(tmp_path / "long" / "model")
    more = [*command, "--resume", "--set", f"train.max_steps={steps + 3}"]
    done = subprocess.run(more, capture_output=True, text=True, env=environment, check=True, timeout=120)
    assert f"resumed after update {steps}" in done.stderr
    assert done.stdout.startswith(f"{steps + 3} updates")


def test_progress_tells_the_time_left(capsys, monkeypatch):
    from volumetric.cli import console

    console.configure(verbose=False, quiet=False, debug=False)
    assert [clock(s) for s in (0.4, 61, 3723)] == ["0:00", "1:01", "1:02:03"]
    bar = TrainingProgress(20, live=True)
    bar.start(0, 0)
    step = StepEvent(step=10, epoch=0, loss=0.5, rate=0.1, gradient_norm=1.0, clipped=False, seconds=0.1)
    bar.report(step)
    bar.close()
    assert "epoch 0  loss 0.5" in capsys.readouterr().err
    now = iter([100.0, 105.0, 107.0, 110.0, 120.0, 125.0])
    monkeypatch.setattr("volumetric.cli.training_progress.time.monotonic", lambda: next(now))
    plain = TrainingProgress(20, live=False)
    plain.start(0, 0)
    plain.report(step)  # this one compiled kernels: nothing follows from the time that it took
    plain.report(EpochEvent(step=10, epoch=0, loss=0.5, validation_loss=0.25, improved=True))
    plain.report(dataclasses.replace(step, step=15))
    plain.report(EpochEvent(step=15, epoch=1, loss=0.5))
    plain.close()
    assert capsys.readouterr().err.splitlines() == [
        "epoch 0: loss 0.5, validation 0.25 (best)",
        "epoch 1: loss 0.5, 0:20 left",
    ]


def test_a_run_that_is_there_already_says_how_to_go_on(tmp_path, capsys):
    (tmp_path / "a.toml").write_text("")
    command = ["train", str(tmp_path / "a.toml"), "--device", "reference", "--quiet"]
    assert [main(command), main(command)] == [0, 2]
    err = capsys.readouterr().err
    assert err.endswith("--resume continues it, --out a-2 writes to another directory\n")
    assert [main([*command, "--resume"]), main([*command, "--out", f"{tmp_path / 'a'}-2"])] == [0, 0]
