"""The picture of README is what its script draws, and small enough to be loaded with the page."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import volumetric
from scripts import readme_picture
from scripts.learning_film import LearningFilm
from scripts.learning_film_plane import plane_png
from scripts.learning_film_svg import film_svg
from volumetric.layers import Dense

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def film() -> LearningFilm:
    network = volumetric.cube(2, 2, 2, Dense(4, activation="tanh"), neighbours="past", inputs=2, outputs=3)
    return readme_picture.learn(network, epochs=3, moments=3, hold=2, samples=60, side=8)


def test_a_film_has_what_the_network_did(film: LearningFilm) -> None:
    assert [moment.epoch for moment in film.moments] == [1, 2, 3, 3, 3]
    assert len(film.losses) == 3
    assert film.losses[0] > film.losses[-1]
    for moment in film.moments:
        assert moment.plane.shape == (8, 8, 3)
        assert np.allclose(moment.plane.sum(2), 1)
        assert list(moment.activity) == list(film.network.layers)
        assert min(list(moment.activity.values())[:-1]) > 0
    assert film.moments[0].activity != film.moments[1].activity
    assert not np.array_equal(film.moments[0].plane, film.moments[2].plane)


def test_the_map_is_upright(film: LearningFilm) -> None:
    """The first row of the image is the upper edge of the plane, and its first column the left edge."""
    moment = readme_picture.moment_of(
        film.network,
        volumetric.initialise(film.network, seed=3),
        np.array([[-readme_picture.REACH, readme_picture.REACH]], np.float32),
        epoch=1,
        side=8,
        held=(film.points, film.classes),
    )
    assert moment.plane[0, 0].argmax() == moment.answer


def test_the_picture_is_svg_whose_animations_exist(film: LearningFilm) -> None:
    text = film_svg(film)
    root = ET.fromstring(text)
    assert root.attrib["viewBox"] == "0 0 960 400"
    defined = set(re.findall(r"@keyframes (\w+)", text))
    used = set(re.findall(r"animation(?:-name)?:([a-z]\w*)", text)) - {"none"}
    assert used == defined
    assert {f"c{i}" for i in range(8)} <= defined
    assert len(root.findall(".//{*}image")) == 3
    assert "prefers-color-scheme" in text
    assert "prefers-reduced-motion" in text
    assert not re.search(r"(href|src)=\"(?!#|data:)", text)  # nothing is loaded from elsewhere, which <img> forbids


def test_an_image_shows_the_likeliest_class() -> None:
    plane = np.array([[[1, 0, 0], [0.2, 0.5, 0.3]], [[0, 0, 1], [1 / 3, 1 / 3, 1 / 3]]])
    png = plane_png(plane)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, rows = 8, b""
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at : at + 8])
        data = png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(name + data)
        rows += zlib.decompress(data) if name == b"IDAT" else b""
        at += 12 + length
    pixels = np.frombuffer(rows, np.uint8).reshape(2, 3)[:, 1:]
    assert (pixels // 10).tolist() == [[0, 1], [2, 0]]
    assert (pixels % 10).tolist() == [[9, 2], [9, 0]]


def test_readme_shows_the_picture() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert 'src="docs/grid_that_learns.svg"' in readme
    assert readme_picture.PICTURE == ROOT / "docs/grid_that_learns.svg"
    text = readme_picture.PICTURE.read_text(encoding="utf-8")
    assert len(text.encode()) < 400_000
    accuracy = re.search(r"right for (\d+)% of points", text)
    assert accuracy is not None
    assert int(accuracy[1]) > 95
    assert {f"c{i}" for i in range(64)} <= set(re.findall(r"@keyframes (\w+)", text))
