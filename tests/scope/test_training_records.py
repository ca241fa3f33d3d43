"""Records of training runs: from files whole and damaged, results and watches; their size on a page."""

from __future__ import annotations

import gzip
import json
import os

import numpy as np
import pytest

from tests.scope.training_runs import train_spirals, write_diverged, write_run
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.scope import ScopeDocument
from volumetric.scope.document import encode_document, encode_message
from volumetric.scope.epoch_log import CAPACITY, EpochLog
from volumetric.scope.page import scope_page
from volumetric.scope.sample_pictures import sample_pictures
from volumetric.scope.step_curves import StepCurves
from volumetric.scope.training_files import read_run
from volumetric.scope.training_live import TrainingLive, training_viewer
from volumetric.scope.training_record import TrainingRecord
from volumetric.scope.training_view import training_view
from volumetric.scope.training_watch import TrainingWatch
from volumetric.train import CsvReporter


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "spirals")


def test_a_directory_has_all_parts(run):
    view = training_view(run, names=["a"])
    [shown] = view.data["runs"]
    assert (view.kind, view.name) == ("training", "training")
    assert shown["name"] == "a"
    assert shown["status"] == "all epochs done"
    assert not shown["running"]
    assert shown["steps"]["step"].tolist() == list(range(1, 13))  # 90 samples, batches of 32, 4 epochs
    assert set(shown["steps"]["values"]) == {"loss", "rate", "gradient_norm", "update_seconds"}
    assert set(shown["epochs"]["values"]) == {"loss", "validation_loss", "accuracy"}
    assert shown["epochs"]["epoch"].tolist() == [1, 2, 3, 4]
    assert shown["settings"]["optimiser.lr"] == "0.02"
    assert shown["settings"]["network"] == "dense 2×12 · dense 12×12 · dense 12×3"
    layers, weights, samples = shown["layers"], shown["weights"], shown["samples"]
    assert [one["mode"] for one in layers["names"]] == ["forward"] * 3 + ["backward"] * 3
    assert layers["step"].tolist() == [2, 4, 6, 8, 10, 12]
    assert layers["values"]["active"].shape == (6, 6)
    assert weights["norm"].shape == (4, 6)
    assert weights["shares"].shape == (4, 6, 32)
    assert abs(int(weights["shares"][0, 0].sum()) - 65535) < 32
    assert samples["predictions"].shape == (4, 12)
    assert samples["confusion"].shape == (4, 3, 3)
    assert view.data["inputs"][0]["kind"] == "numbers"
    encode_document(ScopeDocument(title="", source="", views=(view,)))


def test_a_result_has_epochs(tmp_path):
    result = train_spirals(reporters=[CsvReporter(tmp_path / "history.csv")])
    [of_result, of_csv] = training_view(result, tmp_path, names=["result", "table"]).data["runs"]
    for name, values in of_result["epochs"]["values"].items():
        np.testing.assert_allclose(values["mean"], of_csv["epochs"]["values"][name]["mean"], rtol=1e-6)
    assert not len(of_result["steps"]["step"])
    assert len(of_csv["steps"]["step"]) == 12


def test_only_checkpoints_are_enough(run, tmp_path):
    (tmp_path / "checkpoints").symlink_to(run / "checkpoints")
    [shown] = training_view(tmp_path).data["runs"]
    assert len(shown["epochs"]["step"]) == 4
    assert shown["settings"]["loss"] == "cross_entropy"


def test_divergence_is_shown_as_what_it_is(tmp_path):
    [shown] = training_view(write_diverged(tmp_path)).data["runs"]
    assert shown["status"].startswith("diverged at step 1: ")
    assert shown["marks"][-1]["name"] == "diverged"
    record = TrainingRecord("a")
    step = {"event": "step", "step": 1, "epoch": 0, "loss": "nan", "rate": 0.1, "gradient_norm": "inf", "seconds": 0.1}
    record.add(step)
    assert [mark["text"] for mark in record.marks] == ["step 1: loss is nan", "step 1: gradient norm is inf"]
    assert np.isnan(record.steps.buckets().values["loss"]).all()


def test_damaged_files_are_shown_as_far_as_they_go(run, tmp_path):
    text = (run / "history.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "history.jsonl").write_bytes(
        b"".join(
            [
                *text[:3],
                b"\xff\xfe{]\n",
                b'{"event": "step", "step": {}}\n',
                b"[" * 5000 + b"\n",
                *text[3:6],
                text[6][:20],
            ]
        )
    )
    (tmp_path / "weights.jsonl").write_text('{"event": "weights", "step": 1, "epoch": 0, "arrays": [{"key": "a"}]}\n')
    record = read_run(tmp_path)
    assert len(record.steps) + len(record.epochs) == 6
    assert "history.jsonl: 3 lines are unreadable and left out, the first is line 4" in record.notes
    assert "weights.jsonl: 1 line is unreadable and left out, the first is line 1" in record.notes
    assert not record.running
    assert record.status == "no end recorded"


@pytest.mark.parametrize("content", [b"\x00" * 100 + b"\n", b"{}\n" * 3, b'{"event": "step"}\n'])
def test_what_is_no_history_is_refused(tmp_path, content):
    (tmp_path / "history.jsonl").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"history\.jsonl: . lines? (is|are) unreadable"):
        training_view(tmp_path)


def test_sources_that_are_no_runs_are_refused(tmp_path):
    with pytest.raises(SpecError, match="has no history of training"):
        training_view(tmp_path)
    with pytest.raises(SpecError, match="does not exist"):
        training_view(tmp_path / "nothing")
    with pytest.raises(SpecError, match="shows 1 … 16 runs, got 0"):
        training_view()
    with pytest.raises(SpecError, match="int is no training run"):
        training_view(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SpecError, match="got 1 names for 2 runs"):
        training_view(tmp_path, tmp_path, names=["a"])
    checkpoint = tmp_path / "checkpoints" / "step-0000000001.npz"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"PK nothing")
    with pytest.raises(CheckpointError, match="cannot read checkpoint"):
        training_view(tmp_path)


def test_curves_join_neighbours_and_keep_peaks():
    curves, values = StepCurves(capacity=64), np.sin(np.arange(10_000) / 500)
    values[7777] = 99
    for i, value in enumerate(values):
        curves.append((i, 0, i), {"a": value})
    buckets = curves.buckets()
    assert 32 <= len(buckets) <= 65
    low, high, mean = buckets.values["a"]
    assert high.max() == 99
    assert low.min() == values.min()
    assert np.average(mean, weights=buckets.counts) == pytest.approx(values.mean())
    assert buckets.axes[0, -1] == 9999
    assert len(curves.buckets(10)) <= 10
    curves.clear_after(5000)
    assert 4500 <= curves.buckets().axes[0, -1] <= 5000
    late = StepCurves()
    late.append((1, 0, 0), {"a": 1.0})
    late.append((2, 0, 0), {"a": 1.0, "b": 2.0})
    assert np.isnan(late.buckets().values["b"][2, 0])


def test_logs_of_epochs_stay_small():
    log = EpochLog()
    for i in range(1000):
        log.append({"step": i, "epoch": i})
        assert log.entries[-1]["step"] == i
    assert log.entries[0]["step"] == 0
    assert len(log.entries) <= CAPACITY + 1
    gaps = np.diff([entry["step"] for entry in log.entries])
    assert set(gaps[:-1]) == {8}
    assert [entry["step"] for entry in log.thinned(3)][::2] == [0, 999]


def write_long(home, steps, seed):
    """Write a history of so many noisy updates."""
    random = np.random.default_rng(seed)
    noise = random.lognormal(size=(steps, 3))
    home.mkdir()
    with (home / "history.jsonl").open("w") as file:
        file.writelines(
            f'{{"event": "step", "step": {i + 1}, "epoch": {i // 1000}, "loss": {loss}, "rate": {0.1 / (i + 1)}, '
            f'"gradient_norm": {norm}, "clipped": false, "seconds": {seconds}}}\n'
            for i, (loss, norm, seconds) in enumerate(noise.tolist())
        )
    return home


def size_of(homes):
    document = ScopeDocument(title="", source="", views=(training_view(*homes),))
    return len(gzip.compress(scope_page(document).encode(), 6))


def test_a_page_of_a_long_run_is_small(tmp_path):
    assert size_of([write_long(tmp_path / "run", 12_000, 0)]) < 700_000


@pytest.mark.thorough
def test_a_page_of_ten_runs_of_100_000_steps_has_at_most_2_mb(tmp_path):
    record = read_run(write_long(tmp_path / "run", 100_000, 0))
    # each array is compressed alone, so ten times the same run is as large as ten runs
    assert 500_000 < size_of([record] * 10) < 2_000_000


def test_pictures_sounds_texts_and_numbers():
    random = np.random.default_rng(0)
    image = sample_pictures(random.random((2, 3, 100, 200)).astype(np.float32))
    assert (image["kind"], image["pixels"].shape, image["size"]) == ("image", (2, 25, 50, 3), [100, 200])
    assert sample_pictures(random.random((2, 784)).astype(np.float32), shape=(1, 28, 28))["kind"] == "image"
    sound = sample_pictures(random.standard_normal((2, 1, 4000)).astype(np.float32))
    assert (sound["kind"], sound["wave"].shape, sound["total"]) == ("sound", (2, 160, 2), 4000)
    assert (sound["wave"][..., 0] <= sound["wave"][..., 1]).all()
    text = sample_pictures(np.array([[72, 105]]), lambda ids: bytes(ids).decode())
    assert text == {"kind": "text", "texts": ["Hi"]}
    assert sample_pictures(np.zeros((2, 5)))["kind"] == "numbers"
    odd = sample_pictures(np.full((1, 1, 4, 4), np.nan, np.float32))
    assert odd["pixels"].max() == 0
    with pytest.raises(SpecError, match="do not have the shape"):
        sample_pictures(np.zeros((2, 5)), shape=(2, 2))


def test_a_watch_has_what_files_have(run):
    watch = TrainingWatch("watched", samples=12, share=1.0)
    train_spirals(reporters=[watch], observers=[watch])
    [shown, of_files] = training_view(watch.record, run).data["runs"]
    for kind in ("steps", "epochs"):
        for name in ("loss", "gradient_norm", "validation_loss"):
            if name in shown[kind]["values"]:
                np.testing.assert_allclose(
                    shown[kind]["values"][name]["mean"], of_files[kind]["values"][name]["mean"], rtol=1e-6
                )
    assert shown["layers"]["step"].tolist() == list(range(1, 13))
    np.testing.assert_allclose(
        shown["layers"]["values"]["mean"][:, 1::2], of_files["layers"]["values"]["mean"], rtol=1e-6
    )
    np.testing.assert_allclose(shown["weights"]["change"], of_files["weights"]["change"], rtol=1e-6)
    np.testing.assert_array_equal(shown["samples"]["predictions"], of_files["samples"]["predictions"])
    assert shown["samples"]["inputs"] == of_files["samples"]["inputs"] == 0  # pictures are stored once
    assert shown["settings"]["optimiser.lr"] == "0.02"
    assert shown["status"] == "all epochs done"


def test_a_watch_takes_its_share_of_time_at_most_but_sees_the_end():
    watch = TrainingWatch(share=0.0)
    result = train_spirals(reporters=[watch], observers=[watch])
    assert len(watch.record.steps) == result.steps
    assert len(watch.record.layers) <= 2  # the first is free, and tells nothing of the time
    assert [entry["epoch"] for entry in watch.record.weights.entries] == [0, 1, 3]
    with pytest.raises(SpecError, match="share must be in 0 … 1"):
        TrainingWatch(share=2)


def test_a_watch_of_a_failed_run_says_so():
    from volumetric.train import DivergedError

    watch = TrainingWatch()
    with pytest.raises(DivergedError):
        train_spirals(lr=3e38, optimiser="sgd", reporters=[watch])
    assert watch.record.status.startswith("diverged at step 1")
    watch = TrainingWatch()
    with pytest.raises(ZeroDivisionError):
        train_spirals(reporters=[watch, lambda event: 1 / 0])
    assert watch.record.status == "ended by an error"


def test_growing_files_are_followed(run, tmp_path):
    lines = (run / "history.jsonl").read_bytes().splitlines(keepends=True)
    history = tmp_path / "history.jsonl"
    history.write_bytes(b"".join(lines[:2]) + lines[2][:30])
    (tmp_path / ".lock").write_text(str(os.getpid()))
    viewer = training_viewer(tmp_path, names=["live"])
    assert isinstance(viewer.live, TrainingLive)
    sent = []
    viewer.live._send = sent.append  # without the thread, so that the test decides when files are read
    viewer.live._turn()
    assert sent == [] or "points" not in sent[0]["runs"][0]
    sent.clear()
    history.write_bytes(b"".join(lines[:6]))
    viewer.live._turn()
    [message] = sent
    [entry] = message["runs"]
    assert entry["points"]["steps"]["step"].tolist() == [3, 4, 5]
    assert entry["running"]
    json.loads(encode_message(message))
    state = viewer.live.act("training", {"do": "state"})
    assert state["revision"] == message["revision"]
    assert state["data"]["runs"][0]["steps"]["step"]["shape"] == [5]
    other = tmp_path / "other"
    other.write_bytes(b"".join(lines[:4]))
    other.replace(history)  # a resumed run writes a new file
    viewer.live._turn()
    assert sent[-1]["runs"] == [{"run": 0, "restarted": True}]
    history.write_bytes(b"".join(lines))
    viewer.live._turn()
    assert sent[-1]["runs"][0]["status"] == "all epochs done"
    with pytest.raises(SpecError, match="cannot do 'nothing'"):
        viewer.live.act("training", {"do": "nothing"})
    viewer.live.close()
