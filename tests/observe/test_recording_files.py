"""Files of recordings: they come back whole and in part, old ones are read, and damaged or hostile ones are refused."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.observe.test_activity import MACHINES, NETWORK, PARAMS, RESETS, X
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.observe import Recording, record
from volumetric.observe.frame_blocks import ActivityFrame, FrameBlocks
from volumetric.observe.recording_file import RecordingMeta
from volumetric.observe.scene import Scene, SceneEdge, SceneNode

OLD = Path(__file__).parents[1] / "fixtures" / "recordings" / "version1.scope"
"""A clocked network of two layers for nine ticks, as an earlier version wrote it; at tick 8 the input is NaN."""
ARRAYS = ("ticks", "node", "odd", "fired", "edge", "reset", "scale")


def same(one: Recording, other: Recording) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype
    assert one.meters.keys() == other.meters.keys()
    for name, values in one.meters.items():
        np.testing.assert_array_equal(values, other.meters[name])
    assert one.scene == other.scene


def long_recording(frames: int = 700, nodes: int = 5) -> tuple[Recording, np.ndarray]:
    """Return frames of a walk, some of them not finite, in several blocks; and their values."""
    rng = np.random.default_rng(0)
    values = np.abs(np.cumsum(rng.standard_normal((frames, nodes)), 0))
    values[rng.random(values.shape) < 0.01] = np.inf
    scene = Scene(
        kind="fabric",
        nodes=tuple(
            SceneNode(id=i, name=f"n{i}", role="cell", group="ab"[i % 2], at=(float(i), 0.0, 0.0)) for i in range(nodes)
        ),
        edges=(SceneEdge(id=0, source=0, target=1, kind="local"),),
    )
    blocks = FrameBlocks(scene)
    for i, rms in enumerate(values):
        fired = rng.random(nodes) < 0.5
        blocks.append(
            ActivityFrame(t=2 * i + 1, rms=rms, fired=fired, reset=i % 90 == 7, edge=np.array([i % 256 / 255]))
        )
    assert len(blocks) == frames
    return Recording(meta=RecordingMeta(every=2), scene=scene, **blocks.arrays()), values


def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    found = record(MACHINES["systolic"], X, params=PARAMS, device="reference", resets=RESETS)
    found.save(tmp_path / "a.scope")
    again = Recording.open(tmp_path / "a.scope")
    same(again, found)
    assert again.meta == found.meta
    assert again.meters.keys() == {"mean", "odd"}
    with zipfile.ZipFile(tmp_path / "a.scope") as file:
        assert sorted(file.namelist()) == ["blocks/000000.npz", "meta.json", "scene.json"]
        assert json.loads(file.read("meta.json"))["format"] == "volumetric.scope"
    none = record(NETWORK, X[:, :0], params=PARAMS, device="reference")
    none.save(tmp_path / "b.scope")
    assert len(Recording.open(tmp_path / "b.scope")) == 0
    edges = msgspec.structs.replace(
        found.scene, kind="fabric", edges=(SceneEdge(id=0, source=0, target=2, kind="local"),)
    )
    attended = Recording(
        meta=found.meta, scene=edges, ticks=found.ticks, node=found.node, odd=found.odd, fired=found.fired,
        edge=np.full((12, 1), 77, np.uint8), reset=found.reset, scale=found.scale,
    )  # fmt: skip
    attended.save(tmp_path / "c.scope")
    assert Recording.open(tmp_path / "c.scope").edge[3, 0] == 77
    assert attended.edge.tolist() == [[77]] * 12  # writing leaves it as it is


def test_blocks_have_their_own_scale_and_are_read_alone(tmp_path: Path) -> None:
    recording, values = long_recording()
    finite = np.isfinite(values)
    step = recording.scale[:, recording.scene.group_of] / 255
    assert (np.abs(recording.values() - values)[finite] <= 0.51 * step[finite]).all()
    assert np.isnan(recording.values()[~finite]).all()
    assert len(np.unique(recording.scale[:, 0])) == 3  # 256, 256 and 188 frames
    recording.save(tmp_path / "long.scope")
    same(Recording.open(tmp_path / "long.scope"), recording)
    for first, count in (
        (0, 3),
        (250, 20),
        (256, 256),
        (511, 1),
        (600, None),
        (699, 5),
        (700, 5),
        (5000, None),
        (3, 0),
    ):
        part = Recording.open(tmp_path / "long.scope", first=first, count=count)
        same(part, recording.select(slice(first, None if count is None else first + count)))
    with pytest.raises(SpecError, match="start at 0"):
        Recording.open(tmp_path / "long.scope", first=-1)
    raw = (tmp_path / "long.scope").read_bytes()
    with zipfile.ZipFile(tmp_path / "long.scope") as file:
        place = file.getinfo("blocks/000001.npz").header_offset
    damaged = bytearray(raw)
    damaged[place + 200] ^= 255  # a part of the file that other parts do not need
    (tmp_path / "long.scope").write_bytes(bytes(damaged))
    same(Recording.open(tmp_path / "long.scope", count=256), recording.select(slice(256)))
    with pytest.raises(CheckpointError):
        Recording.open(tmp_path / "long.scope", first=300, count=2)


def test_frames_are_selected_and_keep_resets() -> None:
    recording, _ = long_recording()
    some = recording.select(slice(None, None, 10))
    assert (len(some), some.meta.every) == (70, 20)
    np.testing.assert_array_equal(some.node, recording.node[::10])
    assert [*np.flatnonzero(some.reset)] == [1, 10, 19, 28, 37, 46, 55, 64]  # frames 7, 97, … belong to the next shown
    assert len(recording.select(slice(5, 5))) == 0
    with pytest.raises(SpecError, match="a step of at least 1"):
        recording.select(slice(None, None, -1))


def test_files_of_version_1_are_read(tmp_path: Path) -> None:
    old = Recording.open(OLD)
    assert (old.meta.version, old.meta.title, len(old)) == (1, "an old one", 9)
    assert old.reset.tolist() == [i == 4 for i in range(9)]
    assert old.fired[:, 1].tolist() == [True, False, False, True, True, False, False, True, False]
    assert np.isnan(old.values()[7, 0])
    assert old.values()[3].tolist() == pytest.approx([0.51283699, 0.05027814])
    same(Recording.open(OLD, first=3, count=2), old.select(slice(3, 5)))
    old.save(tmp_path / "new.scope")
    new = Recording.open(tmp_path / "new.scope")
    assert new.meta.version == 2
    same(new, old)


def test_slow_activity_needs_few_bytes(tmp_path: Path) -> None:
    phase = np.random.default_rng(0).uniform(0, 6, 300)
    waves = np.abs(np.sin(np.arange(512)[:, None] / 40 + phase))
    scene = Scene(
        kind="fabric",
        nodes=tuple(SceneNode(id=i, name=str(i), role="cell", group="g", at=(float(i), 0, 0)) for i in range(300)),
    )
    blocks = FrameBlocks(scene)
    for t, rms in enumerate(waves):
        blocks.append(ActivityFrame(t=t + 1, rms=rms, fired=np.ones(300, bool), reset=False))
    Recording(meta=RecordingMeta(), scene=scene, **blocks.arrays()).save(tmp_path / "waves.scope")
    assert (tmp_path / "waves.scope").stat().st_size < 0.5 * waves.size  # a value has a byte before compression


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def zipped(path: Path, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for part, raw in parts.items():
            file.writestr(part, raw)


@pytest.mark.parametrize("version", [1, 2])
def test_hostile_files_are_refused(tmp_path: Path, version: int) -> None:
    if version == 1:
        whole, block = OLD.read_bytes(), "activity.npz"
    else:
        Recording.open(OLD).save(tmp_path / "good.scope")
        whole, block = (tmp_path / "good.scope").read_bytes(), "blocks/000000.npz"
    path = tmp_path / "bad.scope"
    path.write_bytes(whole)
    good = members_of(path)
    with np.load(io.BytesIO(good[block])) as file:
        arrays = dict(file)
    assert arrays["node"].shape == ((9, 2) if version == 1 else (2, 9))
    meta, scene = (json.loads(good[name]) for name in ("meta.json", "scene.json"))
    huge = (
        np.lib.format.magic(1, 0)
        + b"\x76\x00"
        + b"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999, 3), }".ljust(117)
        + b"\n"
    )
    lying = io.BytesIO()
    with zipfile.ZipFile(lying, "w") as file:
        file.writestr("node.npy", huge)
    nodes = scene["nodes"]
    scenes = {
        "role": {"nodes": [{**nodes[0], "role": "boss"}]},
        "numbers": {"nodes": nodes[::-1]},
        "ends": {"edges": [{"id": 0, "from": 0, "to": 2, "kind": ""}]},
        "port": {"ports": {"x": {"node": -1, "direction": "in"}}},
        "far": {"nodes": [{**node, "at": [1e300, 0, 0]} for node in nodes]},
        "fewer nodes": {"nodes": nodes[:1], "edges": [], "ports": {}},
        "a thousand million nodes": {"nodes": [{**nodes[0], "id": 10**9}]},
    }
    blocks = {
        "pickle": {"node": np.array([{}], object)},
        "type": {"node": arrays["node"].astype(np.float64)},
        "kind": {"node": arrays["t"]},
        "shape": {"node": arrays["node"][:1, :2]},
        "frames": {"t": arrays["t"][:-1]},
        "bits": {"odd": arrays["odd"][:, :0]},
        "edges": {"edge": np.zeros((9, 9), np.uint8)},
        "meter": {"meter.x": np.zeros(3, np.float32)},
        "a meter of no dimension": {"meter.x": np.float32(1)},
        "a scale that is no number": {"scale": np.full_like(arrays["scale"], np.nan)},
        "a scale below 0": {"scale": -arrays["scale"]},
        "ticks that stand still": {"t": np.zeros_like(arrays["t"])},
        "ticks that overflow": {"t": np.linspace(-(2**62), 2**62, 9).astype(np.int64)},
    }
    wrong: dict[str, dict[str, bytes]] = {
        "no scene": {"scene.json": b""},
        "version": {"meta.json": json.dumps({**meta, "version": 3}).encode()},
        "block": {"meta.json": json.dumps({**meta, "block": 0}).encode()},
        "a long block": {"meta.json": json.dumps({**meta, "block": 10**9}).encode()},
        "deep": {"meta.json": b"[" * 100_000},
        "not a number": {"scene.json": good["scene.json"].replace(b'"at":[0.0', b'"at":[NaN')},
        "not npz": {block: b"PK nothing"},
        "header": {block: lying.getvalue()},
        "no node": {block: packed({name: a for name, a in arrays.items() if name != "node"})},
        **{name: {"scene.json": json.dumps({**scene, **part}).encode()} for name, part in scenes.items()},
        **{name: {block: packed({**arrays, **part})} for name, part in blocks.items()},
    }
    if version == 2:
        wrong["a block is missing"] = {"blocks/000002.npz": good[block]}
        wrong["a short block before the last"] = {"blocks/000001.npz": good[block]}
    for name, parts in wrong.items():
        zipped(path, {**good, **parts})
        with pytest.raises(CheckpointError, match=r"bad\.scope") as caught:
            Recording.open(path)
        assert str(caught.value), name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("meta.json", b" " * 3_000_000)
        file.writestr("scene.json", b"")
    with pytest.raises(CheckpointError, match="larger than"):
        Recording.open(path)
    for end in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:end])
        with pytest.raises(CheckpointError):
            Recording.open(path)
    rng = np.random.default_rng(0)
    for _ in range(100):  # whatever is read of it fits together
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(bytes(damaged))
        with contextlib.suppress(CheckpointError):
            assert Recording.open(path).values().shape == (9, 2)


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording, _ = long_recording()
    recording.save(tmp_path / "a.scope")
    monkeypatch.setattr("volumetric.observe.recording_file._ARRAYS", 2 * 256 * 10)  # all blocks together are above that
    with pytest.raises(CheckpointError, match="larger than"):
        Recording.open(tmp_path / "a.scope")


@pytest.mark.parametrize("name", [".", "none.scope"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError):
        Recording.open(tmp_path / name)
