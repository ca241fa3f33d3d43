"""The layer benchmark: its cases, what they count, the rows, and a peer that is not there."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest

from benchmarks import timing
from benchmarks.suites.layers import CASES, LayerRow, chosen, limits, measure_layers, render_layers
from benchmarks.suites.layers.limits import Limits, measure_limits
from benchmarks.suites.layers.run import geometric_mean
from benchmarks.suites.layers.work import layer_works
from benchmarks.timing import enough
from benchmarks.torch_peer import TorchPeer, described, open_peer
from tests.devices import device, graphs
from volumetric.base.errors import DeviceError, SpecError
from volumetric.layers import LAYERS

LIMITS = Limits(flops=1e11, bandwidth=1e10)


def row(torch: float | None = 0.02, **changes: object) -> LayerRow:
    about = {
        "layer": "dense", "shape": "2×3", "role": "forward", "device": "cpu", "seconds": 0.01, "least": 0.009,
        "most": 0.02, "flops": 1e9, "moved": 1e6, "of_limit": 0.5, "torch": torch,
    }  # fmt: skip
    return LayerRow(**(about | changes))  # pyright: ignore[reportArgumentType]


def test_every_kind_that_computes_has_a_case() -> None:
    assert set(CASES) == set(LAYERS) - {"reshape", "flatten", "fabric", "program", "onnx_graph"}
    for name, case in CASES.items():
        assert case.spec.kind == ("sequential" if name == "residual" else name)  # a residual joins what is around it
        assert case.spec.output_shape(case.shape)
        assert json.loads(json.dumps(described(case.spec)))["kind"] == case.spec.kind
    assert [case.name for case in chosen(["lstm", "dense"])] == ["lstm", "dense"]
    with pytest.raises(SpecError, match="no layer is called convolution"):
        chosen(["dense", "convolution"])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "forward", "train"),
    [
        ("dense", 2 * 256 * 1024 * 1024, 3),
        ("conv2d", 2 * 8 * 1024 * 64 * 64 * 9, 3),
        ("lstm", 2 * 2 * 16 * 64 * 1024 * 256, 3),
        ("softmax", 0, 0),
    ],
)
def test_operations_are_counted(name: str, forward: float, train: float) -> None:
    works = layer_works(CASES[name], graphs("reference"))
    assert works["forward"].flops == forward
    assert works["train"].flops == train * forward
    assert works["train"].moved > works["forward"].moved > 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_rows_of_a_measurement(name: str) -> None:
    rows = list(measure_layers(chosen(["gate"]), device(name), repetitions=2, limits=LIMITS))
    assert [(one.layer, one.role, one.shape, one.device) for one in rows] == [
        ("gate", "forward", "4096×512", name),
        ("gate", "train", "4096×512", name),
    ]
    for one in rows:
        assert 0 < one.least <= one.seconds <= one.most
        assert one.of_limit == pytest.approx(max(one.flops / 1e11, one.moved / 1e10) / one.seconds)
        assert one.ratio is None
    with pytest.raises(SpecError, match="repetitions"):
        list(measure_layers(chosen(["gate"]), device(name), repetitions=0, limits=LIMITS))


@pytest.mark.parametrize(
    ("takes", "runs"),
    [(0.02, 10), (0.2, 1), (0.19, 1), (0.07, 2), (5.0, 1), (1e-5, 1000)],
)
def test_so_many_runs_are_measured_as_the_time_has_room_for(monkeypatch, takes: float, runs: int) -> None:
    """At least one, however long it takes, and no more than a thousand."""
    now = 0.0

    def burst(count: int) -> float:
        nonlocal now
        now += takes * count
        return takes

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now)
    assert enough(burst, 0.2) == runs


@pytest.mark.parametrize("host", [False, True])
def test_limits_are_those_of_a_product_and_a_copy(monkeypatch, host: bool) -> None:
    monkeypatch.setattr(limits, "_NUMBERS", 1 << 10)
    monkeypatch.setattr(limits, "_best", lambda seconds: seconds(1) * 0 + 0.5)
    found = measure_limits(graphs("reference"), side=8, host=host)
    assert found == Limits(flops=2 * 8**3 / 0.5, bandwidth=8 * 2**10 / 0.5)


def test_formats() -> None:
    rows = [row(), row(role="train", torch=0.005, flops=0.0)]
    assert geometric_mean(rows) == pytest.approx(1.0)
    table = render_layers(rows, "md")
    assert "| dense | 2×3 | forward | 10 (9–20) | 100.0 GFLOP/s | 50 % | 20 | 2.00 |" in table
    assert "| 0.1 GB/s | 50 % | 5 | 0.50 |" in table
    assert "Geometric mean 1.00 times PyTorch over 2 rows; the least is 0.50." in table
    assert "PyTorch" not in render_layers([row(None)], "md")
    assert [found["ratio"] for found in json.loads(render_layers(rows, "json"))] == [2.0, 0.5]
    assert len(render_layers(rows, "jsonl").splitlines()) == 2
    assert next(csv.DictReader(io.StringIO(render_layers(rows, "csv"))))["layer"] == "dense"
    with pytest.raises(SpecError, match="unknown output format"):
        render_layers(rows, "xml")


def test_a_peer_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(DeviceError, match="cannot start"):
        TorchPeer(tmp_path / "python")
    with pytest.raises(DeviceError, match="PyTorch: "):
        TorchPeer(sys.executable, device="cuda")  # no torch here, or one without CUDA
    with open_peer(None, gpu=False, threads=1) as peer:
        assert peer is None or peer.about.startswith("PyTorch")
