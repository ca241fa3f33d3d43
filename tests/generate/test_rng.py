"""Random streams are reproducible and independent of the order in which they are made."""

from __future__ import annotations

from volumetric.base import rng


def test_a_stream_is_named_not_counted():
    alone = rng.generator(5, 2).random(4).tolist()
    rng.generator(5, 1).random(4)
    assert rng.generator(5, 2).random(4).tolist() == alone


def test_streams_and_seeds_differ():
    first = [rng.generator(*name).random() for name in ((5,), (5, 0), (5, 1), (5, 0, 1), (6,))]
    assert len(set(first)) == len(first)


def test_fresh_seeds_differ():
    assert len({rng.fresh_seed() for _ in range(20)}) > 1
