"""A network, its weights and a clocked network as tables."""

from __future__ import annotations

from volumetric.base.text_table import TextTable
from volumetric.builders import cube, sequential
from volumetric.clocked import Clocked
from volumetric.layers import Dense
from volumetric.network import initialise


def test_equal_places_are_one_row() -> None:
    network = cube(4, 4, 4, Dense(16))
    assert "0…3.0…3.0…3.0  dense  [T, 16] → [T, 16]    272 × 64" in str(network)
    assert "total: 17,408 parameters in 68.0 KiB" in str(network.summary(initialise(network)))
    assert "144 activation with delay 1" in str(network)
    machine = Clocked(network, clocks={(0, 0, 0, 0): "every(2)"})
    assert [line.split()[0] for line in str(machine).splitlines()[3:7]] == [
        "0.0.0.0",
        "0.0.1…3.0",
        "0.1…3.0…3.0",
        "1…3.0…3.0…3.0",
    ]


def test_long_networks_are_abbreviated() -> None:
    lines = str(sequential(*[4 + i % 2 for i in range(90)])).splitlines()
    assert len(lines) < 50
    assert "… 53 more" in lines
    assert "\n" not in repr(sequential(2, 1))


def test_shared_weights_count_once() -> None:
    assert "total: 20 parameters" in str(cube(2, 2, 2, Dense(4), shared=True))


def test_html_escapes_text_and_has_no_script() -> None:
    page = TextTable(columns=("a<b",), rows=(("<script>alert(1)</script>",),), notes=("x & y",))._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "x &amp; y" in page
