"""What an export writes: pieces, variants, refusals; nothing of it needs a GPU."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import narrowed
from tests.graph.test_networks import chain
from tests.networks import tiny_llama
from tests.web.networks import NETWORKS, lstm, mlp, rows_for
from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.builders import sequential
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.recording_context import RecordingContext
from volumetric.devices.gpu.recording_device import RecordingDevice
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import Dense
from volumetric.network import OUTPUT, Network, initialise
from volumetric.run import RunOptions, lower
from volumetric.web import export_network
from volumetric.web.export_network import write_folder
from volumetric.web.replayed_network import ReplayedNetwork
from volumetric.web.sources import recorded_kind
from volumetric.web.variants import VARIANTS, WebVariant
from volumetric.web.weight_pieces import WeightPieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrow(WebVariant):
    """A GPU that binds little."""

    binding: int

    @property
    def caps(self) -> Caps:
        return Caps(max_binding=self.binding, unroll=2, invocations=2048)


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "network.json").read_text(encoding="utf-8"))


def test_pieces_hold_equal_contents_once_and_no_more_than_a_piece(tmp_path: Path) -> None:
    pieces, rng = WeightPieces(tmp_path, most=1024), np.random.default_rng(0)
    contents = [rng.integers(0, 256, size).astype(np.uint8) for size in (100, 900, 2300, 4)]
    parts = [pieces.add(one) for one in contents]
    assert pieces.add(contents[1].copy()) == parts[1]
    listed = pieces.close()
    files = [(tmp_path / one["file"]).read_bytes() for one in listed]
    assert [len(file) for file in files] == [one["bytes"] for one in listed]
    assert [hashlib.sha256(file).hexdigest() for file in files] == [one["sha256"] for one in listed]
    assert max(map(len, files)) <= 1024
    assert sum(map(len, files)) == pieces.nbytes
    for one, of in zip(contents, parts, strict=True):
        assert all(start % 256 == 0 for _, start, _ in of)
        assert b"".join(files[piece][start : start + size] for piece, start, size in of) == one.tobytes()


def test_a_recording_is_that_of_a_gpu(tmp_path: Path) -> None:
    """The same capabilities give the same dispatches, and the weights are the same bytes."""
    device, network = narrowed("native"), lstm()
    plan, params = lower(network), initialise(network, 3)
    context = RecordingContext(device.context.caps, dialect="naga", alignment=device.context.alignment)
    real, recorded = (one.compile(plan, params, RunOptions(context=8)) for one in (device, RecordingDevice(context)))
    rows = real.recordings.count([])._replace(total=4, blocks=4, pieces=1)
    ours, theirs = (one.recordings.as_recording("whole", rows) for one in (recorded, real))
    assert [(entry.dispatch, entry.buffers, entry.dims) for entry in ours.entries] == [
        (entry.dispatch, entry.buffers, entry.dims) for entry in theirs.entries
    ]
    for name, buffer in real.weights.buffers.items():
        contents = recorded.context.read(recorded.weights.buffers[name], buffer.size)
        assert np.array_equal(contents, real.context.read(buffer, buffer.size)), name
    recorded.tune()  # there is nothing to measure
    with pytest.raises(UnsupportedError, match="another machine"):
        recorded.forward(recorded.new_state(), rows_for(network, 1))
    real.close()


LANES = ("subgroups", "plain")


def test_variants_share_weights_and_keep_to_the_limits(tmp_path: Path) -> None:
    network = mlp()
    report = export_network(network, tmp_path / "x", params=initialise(network, 1), title="four", variants=LANES)
    exported = manifest(tmp_path / "x")
    assert exported["format"] == "volumetric.web"
    assert (exported["title"], exported["kind"], exported["version"]) == ("four", "rows", 1)
    assert report.weight_bytes == 1600, "the larger matrix; small contents are in network.json"
    assert [variant["needs"]["subgroup"] for variant in exported["variants"]] == [32, 0]
    assert "enable subgroups;" in "".join(exported["modules"])
    for variant in exported["variants"]:
        texts = {exported["modules"][one["module"]] for one in variant["pipelines"]}
        assert not any("enable" in text for text in texts) or variant["needs"]["features"] == ["subgroups"]
        assert not any("f16" in text or "var<immediate>" in text for text in texts)
        for one in variant["pipelines"]:
            assert sum(access != "uniform" for _, access in one["bindings"]) <= 8
        names = [buffer["name"] for buffer in variant["buffers"]]
        assert len(names) == len(set(names))
        for _, binds, size, *_ in (d for steps in variant["programs"].values() for s in steps for d in s["dispatches"]):
            assert max(size) <= 65535
            for _, buffer, *part in binds:
                offset, nbytes = part or (0, variant["buffers"][buffer]["bytes"])
                assert offset % 256 == 0
                assert 0 < nbytes <= variant["buffers"][buffer]["bytes"] - offset


def test_large_matrices_are_split_and_give_the_same_rows(tmp_path: Path) -> None:
    network = chain(Dense(in_features=64, out_features=200), Dense(in_features=200, out_features=3), shape=(64,))
    params, narrow = initialise(network, 1), Narrow(label="narrow", binding=16 << 10)
    write_folder(recorded_kind(network, params=params, rows=(1, 4)), tmp_path / "x", [narrow])
    assert sum("0.0.0.0/weight" in one["name"] for one in manifest(tmp_path / "x")["variants"][0]["buffers"]) == 4
    exported, x = ReplayedNetwork(tmp_path / "x", narrowed("native").context), rows_for(network, 4)
    executable = ReferenceDevice().compile(lower(network), params)
    expected = executable.forward(executable.new_state(), x, last_only=False)
    np.testing.assert_allclose(exported.call({"input": x})[OUTPUT], expected, rtol=1e-5, atol=1e-6)
    exported.close()


def test_what_does_not_fit_is_refused_by_name_and_leaves_no_folder(tmp_path: Path) -> None:
    network = chain(Dense(in_features=2000, out_features=8), shape=(2000,))
    kind = recorded_kind(network, params=initialise(network, 1), title="wide net", rows=(1,))
    with pytest.raises(UnsupportedError, match=r"wide net exceeds what every browser has: 4 rows of 0\.0\.0\.0/weight"):
        write_folder(kind, tmp_path / "x", [Narrow(label="narrow", binding=16 << 10)])
    llama = tiny_llama()
    kind = recorded_kind(llama, params=initialise(llama, 1), context=512)
    with pytest.raises(UnsupportedError, match=r"keys and values|rows of"):
        write_folder(kind, tmp_path / "x", [Narrow(label="narrow", binding=24 << 10)])
    assert not list(tmp_path.iterdir())


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    network = mlp()
    params = initialise(network, 1)
    for arguments, message in (
        ({"params": None}, "with its weights"),
        ({"rows": ()}, "rows: expected"),
        ({"rows": (0,)}, "rows: expected"),
        ({"context": 0}, "context must be"),
        ({"variants": ("fast",)}, "no variant 'fast'"),
        ({"variants": ("subgroups",)}, "every GPU"),
        ({"variants": ("software",)}, "every GPU"),
    ):
        with pytest.raises(SpecError, match=message):
            export_network(network, tmp_path / "x", **{"params": params, **arguments})
    with pytest.raises(SpecError, match="got int"):
        export_network(3, tmp_path / "x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"no network\.json"):
        export_network(network, tmp_path / "full", params=params)
    assert (tmp_path / "full" / "letter.txt").read_text() == "mine"


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    network, context = mlp(), narrowed("native").context
    export_network(network, tmp_path / "x", params=initialise(network, 1), rows=(1,))
    piece, text = tmp_path / "x" / "weights-000.bin", (tmp_path / "x" / "network.json").read_text()
    data = piece.read_bytes()
    piece.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"weights-000\.bin is damaged"):
        ReplayedNetwork(tmp_path / "x", context)
    for right, wrong, message in (
        ('"version":1', '"version":9', "version 9"),
        ('"volumetric.web"', '"x"', "not an export"),
        ('"kind"', "{", "cannot read"),
    ):
        changed = text.replace(right, wrong, 1)
        (tmp_path / "x" / "network.json").write_text(changed)
        with pytest.raises(CheckpointError, match=message):
            ReplayedNetwork(tmp_path / "x", context)


def test_every_variant_is_known() -> None:
    assert {name: (one.needs()["features"], one.needs()["subgroup"]) for name, one in VARIANTS.items()} == {
        "software": (["fallback-adapter"], 0),
        "subgroups": (["subgroups"], 32),
        "subgroups16": (["subgroups"], 16),
        "subgroups8": (["subgroups"], 8),
        "plain": ([], 0),
    }


@pytest.mark.parametrize(
    ("network", "labels"),
    [
        (NETWORKS["cnn"](), ["software adapters"]),
        (NETWORKS["lstm"](), []),
        (sequential(128, 129), ["subgroups of 32"]),
    ],
)
def test_variants_are_there_where_they_pay(network: Network, labels: list[str], tmp_path: Path) -> None:
    """Products with matrices of weights compile fast; those of graphs do not, above all those with windows.

    Subgroups pay for more than 64 KiB of weights.
    """
    report = export_network(network, tmp_path / "x", params=initialise(network, 1))
    assert list(report.variants) == [*labels, "no subgroups"]
