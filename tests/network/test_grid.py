"""Addresses: index ↔ coordinate, parsing, neighbours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volumetric.base.errors import SpecError
from volumetric.network.grid import Coord, Grid, Link

sides = st.integers(1, 6)


@given(st.builds(Grid, sides, sides, sides, sides))
def test_index_and_coord_are_inverse_and_reading_order_is_sorted(grid: Grid) -> None:
    coords = list(grid)
    assert len(coords) == len(grid)
    assert [grid.index(c) for c in coords] == list(range(len(grid)))
    assert coords == sorted(coords)


@given(st.builds(Coord, *[st.integers(0, 99)] * 4))
def test_text_of_a_coordinate_parses_back(coord: Coord) -> None:
    assert Coord.parse(str(coord)) == coord


@pytest.mark.parametrize("text", ["", "1.2.3", "1.2.3.4.5", "a.0.0.0", "-1.0.0.0", "1.0.0.", "1.0.0.²", "1 .0.0.0"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="not a coordinate"):
        Coord.parse(text)


def test_coordinates_outside_of_the_grid_are_refused_axis_by_axis() -> None:
    grid = Grid(2, 3, 4, 5)
    for coord in (Coord(2), Coord(0, 3), Coord(0, 0, 4), Coord(0, 0, 0, 5), Coord(-1)):
        assert coord not in grid
        with pytest.raises(SpecError, match="outside of the grid 2×3×4×5"):
            grid.index(coord)
    with pytest.raises(SpecError, match="index 120"):
        grid.coord(120)


@pytest.mark.parametrize("side", [0, -1, 1.5, True, "2"])
def test_sides_are_whole_numbers_above_zero(side: object) -> None:
    with pytest.raises(SpecError, match="rows"):
        Grid(2, side)  # pyright: ignore[reportArgumentType]  (the wrong type is the point)


def test_neighbours_share_a_face() -> None:
    grid = Grid(3, 3, 3, 2)
    near = list(grid.neighbours(Coord(1, 1, 1, 1)))
    assert len(near) == 6
    assert near == sorted(near)
    assert list(Grid(1).neighbours(Coord(0))) == []
    assert Coord(0, 0, 1) in set(grid.neighbours(Coord(0)))


def test_links_check_their_fields() -> None:
    with pytest.raises(SpecError, match="link kind"):
        Link(kind="weights", source=Coord(0), target=Coord(1))  # pyright: ignore[reportArgumentType]  (the point)
    with pytest.raises(SpecError, match="combine"):
        Link(kind="activation", source=Coord(0), target=Coord(1), combine="mul")  # pyright: ignore[reportArgumentType]
    with pytest.raises(SpecError, match="names a parameter"):
        Link(kind="activation", source=Coord(0), target=Coord(1), param="weight", source_param="weight")
    with pytest.raises(SpecError, match="one side only"):
        Link(kind="shared", source=Coord(0), target=Coord(1), param="weight")


def test_a_grid_has_no_more_slots_than_can_be_numbered() -> None:
    with pytest.raises(SpecError, match="too many slots"):
        Grid(2**62, 4)
