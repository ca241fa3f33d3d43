from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volumetric.base.errors import ShapeError, SpecError
from volumetric.evolution.novelty import NoveltyArchive, NoveltyConfig
from volumetric.evolution.nsga import crowding, front_ranks, preference

TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(0, 5).map(float), min_size=width, max_size=width), min_size=1, max_size=24
    )
)


def dominates(a: list[float], b: list[float]) -> bool:
    return all(x >= y for x, y in zip(a, b, strict=True)) and a != b


@pytest.mark.thorough
@given(TABLES)
@settings(deadline=None)
def test_a_front_is_beaten_by_the_one_before_it_and_by_none_of_its_own(table: list[list[float]]) -> None:
    ranks = front_ranks(table)
    for point, rank in zip(table, ranks, strict=True):
        beaten_by = {int(r) for other, r in zip(table, ranks, strict=True) if dominates(other, point)}
        assert all(r < rank for r in beaten_by)
        assert rank == 0 or rank - 1 in beaten_by


def test_room_is_the_gap_between_neighbours() -> None:
    table = [[0, 10], [1, 6], [4, 4], [10, 0]]
    np.testing.assert_allclose(crowding(table, front_ranks(table)), [np.inf, 0.4 + 0.6, 0.9 + 0.6, np.inf])


def test_equal_points_and_flat_objectives_have_no_room() -> None:
    table = [[1, 1]] * 4
    assert front_ranks(table).tolist() == [0] * 4
    assert np.isinf(crowding(table, front_ranks(table))).sum() == 2
    assert crowding(table, front_ranks(table))[1] == 0


def test_preference_takes_fronts_first_then_room() -> None:
    table = [[0, 0], [0, 10], [10, 0], [5, 5], [6, 4.5], [-1, -1]]
    assert preference(table).tolist() == [1, 2, 3, 4, 0, 5]


def hypervolume(objectives: list[list[float]], reference: list[float]) -> float:
    """The volume that the points dominate above `reference`, by slicing (Fonseca, Paquete & López-Ibáñez 2006)."""
    table, floor = np.asarray(objectives, np.float64), np.asarray(reference, np.float64)
    return volume(table[(table > floor).all(axis=1)] - floor)


def volume(points: np.ndarray) -> float:
    if len(points) == 0:
        return 0.0
    if points.shape[1] == 1:
        return float(points.max())
    order = np.argsort(-points[:, -1], kind="stable")
    heights = np.append(points[order, -1], 0.0)
    return sum(
        volume(points[order[: i + 1], :-1]) * (heights[i] - heights[i + 1])
        for i in range(len(order))
        if heights[i] > heights[i + 1]
    )


def test_hypervolume_of_boxes() -> None:
    assert hypervolume([[2, 3]], [0, 0]) == 6
    assert hypervolume([[2, 1], [1, 2]], [0, 0]) == 3
    assert hypervolume([[1, 1, 1], [2, 1, 1], [-1, 9, 9]], [0, 0, 0]) == 2
    assert hypervolume([[1, 1]], [1, 0]) == 0


@pytest.mark.thorough
@given(TABLES)
@settings(deadline=None)
def test_dominated_points_add_no_volume(table: list[list[float]]) -> None:
    floor = [-1.0] * len(table[0])
    first = [p for p, r in zip(table, front_ranks(table), strict=True) if r == 0]
    assert hypervolume(table, floor) == pytest.approx(hypervolume(first, floor))


@pytest.mark.parametrize("table", [[[np.nan, 1.0]], [[np.inf]]])
def test_objectives_that_are_not_finite_are_refused(table: list[list[float]]) -> None:
    with pytest.raises(SpecError, match="point 0"):
        front_ranks(table)


@pytest.mark.parametrize("table", [[1.0, 2.0], np.empty((3, 0))])
def test_only_tables_are_taken(table: object) -> None:
    with pytest.raises(ShapeError, match="shape"):
        preference(table)  # pyright: ignore[reportArgumentType]  (wrong on purpose)


def test_novelty_is_the_mean_distance_to_the_nearest() -> None:
    archive = NoveltyArchive(NoveltyConfig(neighbours=2, additions=0))
    np.testing.assert_allclose(archive.score([[0.0], [1.0], [3.0], [10.0]]), [2.0, 1.5, 2.5, 8.0])


def test_what_the_archive_holds_is_not_new_again() -> None:
    archive = NoveltyArchive(NoveltyConfig(neighbours=1, additions=3))
    points = [[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]]
    assert archive.score(points).min() == 5
    assert archive.score(points).max() == 0
    assert len(archive) == 6


def test_the_archive_forgets_the_oldest_and_repeats_by_seed() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 8, 2))
    archives = [NoveltyArchive(NoveltyConfig(additions=3, capacity=7), seed=seed) for seed in (1, 1, 2)]
    histories = [[archive.score(generation) for generation in rows] for archive in archives]
    assert all(len(archive) == 7 for archive in archives)
    np.testing.assert_array_equal(histories[0], histories[1])
    assert (archives[0].behaviours != archives[2].behaviours).any()


def test_a_single_behaviour_has_no_neighbours() -> None:
    assert NoveltyArchive().score([[1.0]]).tolist() == [0.0]


@pytest.mark.parametrize("table", [[1.0], np.empty((0, 2))])
def test_behaviours_need_rows_and_features(table: object) -> None:
    with pytest.raises(ShapeError, match="table"):
        NoveltyArchive().score(table)  # pyright: ignore[reportArgumentType]  (wrong on purpose)


def test_behaviours_of_another_width_are_refused() -> None:
    archive = NoveltyArchive()
    archive.score([[1.0, 2.0]])
    with pytest.raises(ShapeError, match="2 features"):
        archive.score([[1.0]])
    with pytest.raises(SpecError, match="NaN"):
        archive.score([[1.0, np.nan]])
