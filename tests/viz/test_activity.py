"""Films of activity: what GIFs hold is what was recorded."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image, ImageSequence

from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.observe import Recording
from volumetric.observe.recording_file import RecordingMeta
from volumetric.observe.scene import Scene, SceneEdge, SceneNode
from volumetric.viz import save_film
from volumetric.viz.activity_film import codes_of, film_gif, levels_of, places_of
from volumetric.viz.gif import gif


def recorded(node: Any, at: Any = None, names: Any = None, title: str = "") -> Recording:
    node = np.asarray(node, np.uint8)
    frames, count = node.shape
    places = [(float(i), 0.0, 0.0) for i in range(count)] if at is None else at
    nodes = tuple(
        SceneNode(id=i, name=names[i] if names else str(i), role="cell", group="g", at=place)
        for i, place in enumerate(places)
    )
    edges = (SceneEdge(id=0, source=0, target=count - 1, kind="link"),)
    return Recording(
        meta=RecordingMeta(title=title), scene=Scene(kind="systolic", nodes=nodes, edges=edges),
        ticks=np.arange(1, frames + 1),
        node=node, odd=np.zeros(node.shape, bool), fired=np.ones(node.shape, bool),
        edge=np.zeros((frames, 0), np.uint8), reset=np.arange(frames) == 1, scale=np.full((frames, 1), 4, np.float32),
    )  # fmt: skip


def test_a_population_that_is_always_about_as_strong_shows_its_changes() -> None:
    random = np.random.default_rng(1)
    values = np.concatenate([random.integers(0, 256, (40, 3)), random.integers(240, 256, (40, 5))], axis=1)
    given = recorded(values)
    nodes = [
        msgspec.structs.replace(node, group="calm" if i < 3 else "loud") for i, node in enumerate(given.scene.nodes)
    ]
    scene = msgspec.structs.replace(given.scene, nodes=tuple(nodes))
    recording = dataclasses.replace(given, scene=scene, scale=np.full((40, 2), 4, np.float32))
    levels = levels_of(recording)
    assert levels[0].tolist() == [0.0, pytest.approx(4.0, rel=0.05)]
    assert 0.93 * 4 < levels[1][0] < 0.96 * 4
    codes = codes_of(recording, levels)
    assert np.median(codes[:, :3]) == pytest.approx(127, abs=20)
    assert np.median(codes[:, 3:]) == pytest.approx(127, abs=30)
    np.testing.assert_allclose(codes[:, :3] / 254 * levels[0][1], recording.values()[:, :3], atol=0.01)


def test_every_node_has_a_place_of_its_own() -> None:
    at = [(x + slot / 2, float(y), float(z)) for z in range(5) for y in range(4) for x in range(3) for slot in range(2)]
    places = places_of(recorded(np.zeros((1, 120)), at).scene)
    assert len(set(places)) == 120
    assert places[at.index((2.5, 1.0, 0.0))] == (5, 1)
    assert places[at.index((0.0, 0.0, 1.0))] == (7, 0)
    rng = np.random.default_rng(0)
    scattered = [(float(x), float(y), 0.0) for x, y in rng.uniform(-3, 5, (400, 2))]
    found = places_of(recorded(np.zeros((1, 400)), scattered).scene)
    assert len(set(found)) > 300
    assert max(max(place) for place in found) <= 40


def test_films_are_pages_or_gifs(tmp_path: Path) -> None:
    recording = recorded(np.zeros((3, 2)), title="few")
    save_film(recording, tmp_path / "a.html")
    assert "<title>few</title>" in (tmp_path / "a.html").read_text()
    with pytest.raises(UnsupportedError, match=r"a\.png"):
        save_film(recording, tmp_path / "a.png")
    with pytest.raises(SpecError):
        save_film(recording, tmp_path / "a.gif", rate=0)


def pictures(data: bytes) -> tuple[list[np.ndarray], Image.Image]:
    image = Image.open(io.BytesIO(data))
    return [np.array(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)], image


def test_a_gif_has_what_was_recorded(tmp_path: Path) -> None:
    recording = recorded([[0, 255], [255, 0], [64, 0], [0, 0]])
    recording.odd[3, 1] = True
    found, image = pictures(film_gif(recording, rate=10, frames=500))
    assert [picture[0, [0, -2]].tolist() for picture in found] == [
        [[26, 26, 36], [255, 210, 122]],
        [[255, 210, 122], [26, 26, 36]],
        [[142, 120, 80], [26, 26, 36]],
        [[26, 26, 36], [194, 24, 91]],
    ]
    assert image.info["duration"] == 100
    assert image.info["loop"] == 0
    save_film(recording, tmp_path / "a.gif", rate=10, frames=2)
    found, image = pictures((tmp_path / "a.gif").read_bytes())
    assert [picture[0, 0].tolist() for picture in found] == [[26, 26, 36], [142, 120, 80]]
    assert image.info["duration"] == 200
    for count, lasts in ((6, 340), (30, 70), (100, 40)):  # two seconds at least, unless asked for, and 25 frames in one
        save_film(recorded(np.arange(2 * count).reshape(count, 2)), tmp_path / "b.gif")
        assert pictures((tmp_path / "b.gif").read_bytes())[1].info["duration"] == lasts
    none = pictures(film_gif(recorded(np.zeros((0, 3))), rate=10, frames=5))[0]
    assert len(none) == 1


@pytest.mark.parametrize("colours", [2, 3, 64, 256])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 90, 100), (2, 3, 300)])
def test_gifs_are_read_as_they_were_written(colours: int, shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, colours, shape).astype(np.uint8)
    frames[-1] = frames[0]
    palette = rng.integers(0, 256, (colours, 3))
    found, _ = pictures(gif(frames, [tuple(colour) for colour in palette.tolist()], seconds=0.04))
    np.testing.assert_array_equal(np.stack(found), palette[frames])


def test_what_is_no_picture_is_refused() -> None:
    with pytest.raises(ShapeError):
        gif(np.full((1, 2, 2), 2, np.uint8), [(0, 0, 0), (1, 1, 1)], seconds=1)
    with pytest.raises(ShapeError):
        gif(np.zeros((0, 2, 2), np.uint8), [(0, 0, 0), (1, 1, 1)], seconds=1)
    with pytest.raises(SpecError):
        gif(np.zeros((1, 2, 2), np.uint8), [(0, 0, 0)], seconds=1)


@pytest.mark.parametrize("name", ["a.html", "a.gif"])
@pytest.mark.parametrize("sizes", [{"frames": 0}, {"rate": 0}])
def test_films_of_nothing_are_refused(name: str, sizes: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="of 1 or more, got 0"):
        save_film(recorded([[0, 64]]), tmp_path / name, **sizes)
    save_film(recorded([[0, 64]]), tmp_path / name, **dict.fromkeys(sizes, 1))
