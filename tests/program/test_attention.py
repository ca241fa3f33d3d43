"""Attention rules: as another package has them, edges side by side, masks, and what cannot be."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.devices import graphs
from tests.oracles import oracle as in_numpy
from tests.program.attention_oracles import CASES, Oracle, load
from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph import GraphBuilder, NumpyGraphs, differentiate
from volumetric.program.layer.attention import (
    RULES,
    Attention,
    Pairs,
    attend,
    attend_directly,
    is_direct,
    rule_of,
    stack_tensors,
    transpose_params,
)

EXACT = 1e-9
FORWARD, BACKWARD = 2e-5, 2e-4
FEW = tuple(case for case in CASES if case.endswith("5x7"))
SMALL = {"mamba": {"state_size": 2}, "perceiver": {"latents": 3}, "sparse": {"top_k": 2}}


def small(name: str) -> Attention:
    return rule_of(name, SMALL.get(name), heads=2)


def whole(oracle: Oracle, device: Any, dtype: type) -> dict[str, Array]:
    """What a device computes in one graph, forward and back, for the case."""
    work = GraphBuilder()
    given = {name: work.input(name, (1, *x.shape)) for name, x in oracle.given.items()}
    p = {name: work.input(name, (1, *x.shape)) for name, x in oracle.p.items()}
    y = attend(work, oracle.rule, p, given["queries"], given["keys"], oracle.pairs, given["values"])
    found = differentiate(work, {y: work.input("gy", work.shape(y))}, [*given.values(), *p.values()])
    made = {"y": y} | {name: found[i] for name, i in (given | p).items() if i in found}
    graph = work.finish(list(made.values()))
    inputs = [*oracle.given.values(), *oracle.p.values(), np.where(oracle.written[:, None], oracle.cotangent, 0)]
    results = device.compile(graph, device.store()).run([np.asarray(x, dtype)[None] for x in inputs])
    return {name: x[0] for name, x in zip(made, results, strict=True)}


def check(oracle: Oracle, found: dict[str, Array], forward: float, backward: float) -> None:
    np.testing.assert_array_equal(found["y"][:, ~oracle.written], 0)
    written, scale = oracle.written, np.abs(oracle.y[:, oracle.written]).max(initial=1)
    np.testing.assert_allclose(found["y"][:, written] / scale, oracle.y[:, written] / scale, rtol=0, atol=forward)
    scale = max((np.abs(g).max() for g in oracle.grads.values()), default=1)
    for name, g in oracle.grads.items():
        got = found.get(name, np.zeros_like(g))
        np.testing.assert_allclose(got / scale, g / scale, rtol=0, atol=backward, err_msg=name)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_another_package(case: str) -> None:
    oracle = load(case)
    given = oracle.given
    y = in_numpy(oracle.rule).forward(oracle.p, given["queries"], given["keys"], oracle.pairs, given["values"])
    check(oracle, {"y": y} | oracle.grads, EXACT, EXACT)
    check(oracle, whole(oracle, NumpyGraphs(np.float64), np.float64), EXACT, EXACT)


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["cpu", "gpu"])
@pytest.mark.parametrize("case", FEW)
def test_devices(case: str, where: str) -> None:
    oracle = load(case)
    check(oracle, whole(oracle, graphs(where), np.float32), FORWARD, BACKWARD)


@cache
def filled(rule: Attention, queries: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {of.name: rng.normal(size=of.shape) for of in rule.params(4, queries)}


def masks(queries: int, keys: int) -> dict[str, Array | None]:
    rng = np.random.default_rng(3)
    tiles = np.arange(queries)[:, None] // 3 == np.arange(keys) // 3
    return {"none": None, "tiles": tiles, "any": rng.random((queries, keys)) < 0.4}


@pytest.mark.parametrize("mask", ["none", "tiles", "any"])
@pytest.mark.parametrize("name", list(RULES))
def test_edges_side_by_side(name: str, mask: str) -> None:
    """Two edges of two streams, whose source is one, are what each is alone; what is not written is zeros."""
    rule, rng = small(name), np.random.default_rng(1)
    n, m = 7, 6
    pairs = Pairs(n, m, masks(n, m)[mask])
    ps = [filled(rule, n, seed) for seed in (0, 1)]
    queries, source = rng.normal(size=(2, 2, n, 4)), rng.normal(size=(1, 2, m, 4))
    work = GraphBuilder()
    inputs = [work.input("queries", queries.shape), work.input("source", source.shape)]
    p = {of: stack_tensors(work, [work.constant(each[of]) for each in ps]) for of in ps[0]}
    made = [attend(work, rule, p, inputs[0], inputs[1], pairs)]
    if is_direct(rule, pairs, 4):
        table = work.concat([work.reshape(x, (2 * k, 4)) for x, k in zip(inputs, (2 * n, m), strict=True)], 0)
        asks = np.arange(4 * n).reshape(2, 2, n)
        tells = 4 * n + np.stack([np.arange(2 * m).reshape(2, m)] * 2)
        asks, tells = (work.constant(ids.astype(np.int32)) for ids in (asks, tells))
        made.append(attend_directly(work, rule, transpose_params(work, p), (table, asks, tells), pairs))
    graph = work.finish(made)
    device = NumpyGraphs(np.float64)
    y, *directly = device.compile(graph, device.store()).run([queries, source])
    assert len(directly) == (name in ("cross", "gated", "local", "random_fixed"))
    for other in directly:
        np.testing.assert_allclose(other, y, rtol=0, atol=1e-12)
    want = [in_numpy(rule).forward(each, asked, source[0], pairs) for each, asked in zip(ps, queries, strict=True)]
    np.testing.assert_allclose(y[: 2 if p else 1], want[: 2 if p else 1], rtol=0, atol=1e-12)
    assert not y[:, :, ~rule.written_queries(pairs)].any()


@pytest.mark.parametrize("name", list(RULES))
def test_a_mask_leaves_nothing_of_what_it_hides(name: str) -> None:
    rule = small(name)
    seen = masks(6, 6)["tiles"]
    assert seen is not None
    rng = np.random.default_rng(2)
    queries, source = rng.normal(size=(1, 6, 4)), rng.normal(size=(1, 6, 4))
    other = source.copy()
    other[:, :3] += 1.0
    p, pairs = filled(rule, 6), Pairs(6, 6, seen)
    before, after = (in_numpy(rule).forward(p, queries, x, pairs) for x in (source, other))
    np.testing.assert_array_equal(before[:, 3:], after[:, 3:])


def test_a_mask_of_tiles_is_each_tile_alone() -> None:
    rng = np.random.default_rng(4)
    queries, source = rng.normal(size=(2, 6, 4)), rng.normal(size=(2, 6, 4))
    for name in RULES:
        if name in ("local", "random_fixed", "hyena"):  # these count positions of the whole edge
            continue
        rule = small(name)
        p = filled(rule, 6)
        y = in_numpy(rule).forward(p, queries, source, Pairs(6, 6, masks(6, 6)["tiles"]))
        alone = [
            in_numpy(rule).forward(p, queries[:, part], source[:, part], Pairs(3, 3))
            for part in (slice(3), slice(3, 6))
        ]
        np.testing.assert_allclose(y, np.concatenate(alone, axis=1), rtol=0, atol=1e-12, err_msg=name)


def test_keys_are_drawn_by_the_seed_among_those_that_may_be_seen() -> None:
    mask = np.random.default_rng(5).random((9, 20)) < 0.6
    mask[4] = False
    pairs = Pairs(9, 20, mask)
    drawn = rule_of("random_fixed", {"count": 3, "seed": 7}).visible(pairs)
    assert drawn is not None
    assert not (drawn & ~mask).any()
    assert list(drawn.sum(1)) == [min(3, int(row.sum())) for row in mask]
    np.testing.assert_array_equal(drawn, rule_of("random_fixed", {"count": 3, "seed": 7}).visible(pairs))
    assert (drawn != rule_of("random_fixed", {"count": 3, "seed": 8}).visible(pairs)).any()


def test_nearness_on_the_canvas() -> None:
    places = np.stack(np.meshgrid(np.arange(3), np.arange(4), indexing="ij"), axis=-1).reshape(-1, 2)
    seen = rule_of("local", {"window": 2, "metric": "grid"}).visible(Pairs(12, 12, None, (places, places)))
    assert seen is not None
    want = [[np.hypot(*(a - b)) <= 1 for b in places] for a in places]
    np.testing.assert_array_equal(seen, want)
    with pytest.raises(SpecError, match="needs places"):
        rule_of("local", {"metric": "grid"}).visible(Pairs(12, 12))


def test_extremes_are_finite() -> None:
    """Saturated, zero and single rows, forward and back."""
    for name in RULES:
        rule = small(name)
        for n, m, size in ((1, 1, 50.0), (3, 1, 0.0), (1, 4, -50.0)):
            p = {of: x * 5 for of, x in filled(rule, n).items()}
            given = {"queries": np.full((1, n, 4), size), "keys": np.full((1, m, 4), size)}
            given["values"] = given["keys"]
            y = in_numpy(rule).forward(p, given["queries"], given["keys"], Pairs(n, m))
            oracle = Oracle(rule=rule, p=p, given=given, pairs=Pairs(n, m), y=y, cotangent=np.ones((1, n, 4)), grads={})
            found = whole(oracle, NumpyGraphs(np.float64), np.float64)
            assert all(np.isfinite(x).all() for x in found.values()), name


def test_a_stream_that_is_not_a_number_stays_alone() -> None:
    rng = np.random.default_rng(6)
    queries, source = rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 7, 4))
    bad = source.copy()
    bad[0, 2] = np.nan
    for name in RULES:
        rule = small(name)
        with np.errstate(invalid="ignore"):
            y = in_numpy(rule).forward(filled(rule, 5), queries, bad, Pairs(5, 7))
        np.testing.assert_array_equal(
            y[1], in_numpy(rule).forward(filled(rule, 5), queries, source, Pairs(5, 7))[1], err_msg=name
        )


def test_names_and_options() -> None:
    assert rule_of("self_attention") == rule_of("cogvideox") == rule_of("cross")
    assert rule_of("local", {"window": 6}, heads=2) == rule_of("local_attention", {"heads": 2, "window": 6}, heads=8)
    assert rule_of("copy", heads=2) == rule_of("copy")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cros", {}, "did you mean 'cross'"),
        ("what", {}, "one of copy, cosine"),
        ("local", {"windw": 3}, "did you mean 'window'"),
        ("copy", {"heads": 3}, "its options are none"),
        ("local", {"window": 0}, "window must be a whole number above 0, got 0"),
        ("local", {"window": "big"}, "got 'big'"),
        ("local", {"metric": "far"}, "unknown metric 'far'"),
        ("cross", {"heads": True}, "got True"),
        ("random_fixed", {"seed": -1}, "seed must be a whole number from 0 on"),
        ("mixture", {"top_k": 5}, "top_k 5 is more than its 4 experts"),
        ("hyena", {"length": -2}, "length must be a whole number from 0 on"),
    ],
)
def test_what_names_no_rule(name: str, options: dict[str, int | str], message: str) -> None:
    with pytest.raises(SpecError) as error:
        rule_of(name, options)
    assert message in f"{error.value} {error.value.hint}"


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(SpecError, match="4 heads do not divide a width of 6"):
        rule_of("cross").params(6, 1)
    with pytest.raises(SpecError, match="length 4 are too short for 5 positions"):
        rule_of("hyena", {"length": 4}).params(4, 5)
    for n, m in ((0, 3), (3, 0)):
        with pytest.raises(ShapeError, match="no position"):
            Pairs(n, m)
    for mask in (np.ones((3, 2), np.bool_), np.ones((2, 3))):
        with pytest.raises(ShapeError, match=r"a mask of 2 queries and 3 keys must be bool \[2, 3\]"):
            Pairs(2, 3, mask)
    with pytest.raises(ShapeError, match=r"places must be \[2, axes\] and \[3, axes\]"):
        Pairs(2, 3, None, (np.zeros((2, 2)), np.zeros((2, 2))))
    rule, x = rule_of("copy"), np.zeros((1, 3, 4))
    with pytest.raises(ShapeError, match=r"source are \[1, 2, 4\], got \[1, 3, 4\]"):
        in_numpy(rule).forward({}, x, x, Pairs(3, 2))
    work = GraphBuilder()
    i = work.input("x", (1, *x.shape))
    with pytest.raises(ShapeError, match=r"source must be \[1, 1, 2, 4\]"):
        attend(work, rule, {}, i, i, Pairs(3, 2))
