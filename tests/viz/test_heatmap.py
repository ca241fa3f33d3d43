from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from volumetric.base.errors import UnsupportedError
from volumetric.viz.heatmap import Heatmap

TABLE = Heatmap(
    values=np.array([[1.0, -0.25, np.nan], [0.0, 0.5, -1.0]]),
    rows=["a <b>", "c"],
    columns=["0", "1", "gate"],
    title="one & two",
)


def test_page_shows_every_number_and_escapes_names() -> None:
    page = TABLE.html()
    assert page.count("<td") == 6
    assert page.count("<td></td>") == 1
    assert "a &lt;b&gt;" in page
    assert "one &amp; two" in page
    assert 'title="-0.250000"' in page


def test_colours_run_from_red_over_white_to_blue() -> None:
    page = TABLE.html()
    assert "rgb(33,102,172)" in page  # 1
    assert "rgb(178,24,43)" in page  # -1
    assert "rgb(247,247,247)" in page  # 0


@pytest.mark.thorough
@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_pictures_are_of_their_format(tmp_path: Path, suffix: str, magic: bytes) -> None:
    TABLE.save(tmp_path / f"map.{suffix}")
    assert (tmp_path / f"map.{suffix}").read_bytes().startswith(magic)


def test_html_is_written_as_utf8(tmp_path: Path) -> None:
    TABLE.save(tmp_path / "map.html")
    assert (tmp_path / "map.html").read_text(encoding="utf-8") == TABLE.html()


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"map\.jpg") as caught:
        TABLE.save(tmp_path / "map.jpg")
    assert ".png" in str(caught.value.hint)
    assert not list(tmp_path.iterdir())


def test_colours_spread_over_the_numbers_that_there_are() -> None:
    near = Heatmap(values=np.array([[0.995, 0.9975], [1.0, np.nan]]), rows=["a", "b"], columns=["0", "1"], title="")
    assert near.limits == (0.995, 1.0)
    page = near.html()
    for colour in ("255,255,217", "65,182,196", "8,29,88"):  # the ends and the middle
        assert f"rgb({colour});color" in page
    assert ">0.9975<" in page  # as many digits as tell them apart
    assert "linear-gradient" in page


def test_a_scale_of_its_own_leaves_small_numbers_pale() -> None:
    table = Heatmap(
        values=np.array([[0.01, -0.02]]), rows=["a"], columns=["0", "1"], title="", scale=(-1, 1), note="of <what>"
    )
    assert table.limits == (-1, 1)
    page = table.html()
    assert "of &lt;what&gt;" in page
    for colour in re.findall(r"background:rgb\((\d+),(\d+),(\d+)\)", page)[:2]:
        assert min(map(int, colour)) > 235
    assert ">0.010<" in page  # the numbers tell what colours do not


def test_no_more_labels_than_there_is_room_for() -> None:
    names = [str(i) for i in range(100)]
    found = Heatmap(values=np.eye(100), rows=names, columns=names, title="")._ticks(names)
    assert len(found) <= 32
    assert all(label == str(place) for place, label in found.items())


def test_what_is_compared_with_itself_does_not_stretch_the_scale() -> None:
    table = Heatmap(values=np.array([[1.0, 0.2], [0.3, 1.0]]), rows=["a", "b"], columns=["a", "b"], title="")
    assert table.limits == (0.2, 0.3)


@pytest.mark.thorough
@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
def test_equal_numbers_are_drawn(tmp_path: Path, value: float) -> None:
    table = Heatmap(values=np.full((2, 3), value), rows=["a", "b"], columns=["0", "1", "2"], title="")
    table.save(tmp_path / "map.png")
    assert table.html().count("<td") == 6
