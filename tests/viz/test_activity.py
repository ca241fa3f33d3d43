"""Films of activity: what the page holds is what was recorded."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric import Coord, Grid
from volumetric.errors import ShapeError, UnsupportedError
from volumetric.viz import Activity


def film_of(page: str) -> dict[str, Any]:
    [data] = re.findall(r"const film=(.*);\n", page)
    return json.loads(data)


def test_values_are_bytes_of_the_largest_one() -> None:
    values = np.array([[0, 1], [2, np.nan], [4, np.inf]], np.float32)
    film = Activity(layers={Coord(0): "dense", Coord(1): "</script>"}, values=values, title="a <b>")
    page = film.html()
    told = film_of(page)
    codes = np.frombuffer(base64.b64decode(told["codes"]), np.uint8).reshape(3, 2)
    np.testing.assert_array_equal(codes, [[0, 64], [127, 255], [254, 255]])
    assert told["top"] == 4
    assert told["names"] == ["0.0.0.0 dense", "1.0.0.0 </script>"]
    assert page.count("</script>") == 1
    assert "a &lt;b&gt;" in page
    assert "<b>" not in page


def test_every_layer_has_a_place_of_its_own() -> None:
    grid = Grid(5, 4, 3, 2)
    layers = {grid.coord(i): "dense" for i in range(120)}
    cells = film_of(Activity(layers=layers, values=np.zeros((1, 120), np.float32), title="").html())["cells"]
    assert len({tuple(cell) for cell in cells}) == 120
    place = dict(zip(layers, cells, strict=True))
    assert place[Coord(0, 1, 2, 1)] == [5, 1]


def test_a_page_is_small_and_needs_nothing_else(tmp_path: Path) -> None:
    grid = Grid(8, 8, 8)
    values = np.random.default_rng(0).random((500, 512), np.float32)
    film = Activity(layers={grid.coord(i): "dense" for i in range(512)}, values=values, title="large")
    film.save(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert len(page) < 500_000
    assert not re.search(r"https?:|src=|href=|import|fetch", page)
    with pytest.raises(UnsupportedError, match=r"a\.png"):
        film.save(tmp_path / "a.png")


def test_nothing_recorded_and_nothing_active_are_films_too() -> None:
    layers = {Coord(0): "dense"}
    for values in (np.zeros((0, 1), np.float32), np.zeros((2, 1), np.float32), np.full((2, 1), np.nan, np.float32)):
        assert film_of(Activity(layers=layers, values=values, title="").html())["top"] == 1
    with pytest.raises(ShapeError, match=r"\[ticks, 1\], got \[2, 3\]"):
        Activity(layers=layers, values=np.zeros((2, 3), np.float32), title="")
