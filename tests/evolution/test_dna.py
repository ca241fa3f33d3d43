from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.networks import tiny_llama
from volumetric.base.errors import SpecError, VolumetricError
from volumetric.dtypes import DTYPES, Scheme
from volumetric.evolution.dna import SKETCH, extract_dna, leaves
from volumetric.evolution.dna_comparison import compare, similarity_matrix
from volumetric.layers import Dense, Gate, LayerSpec, Parallel, RMSNorm, Sequential, Softmax
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore


def chain(*layers: LayerSpec, width: int = 24) -> Network:
    placed = {Coord(z): spec for z, spec in enumerate(layers)}
    return Network(grid=Grid(len(layers)), layers=placed, input_shape=(width,), input_dtype="float32")


def dense(features: int = 24) -> Dense:
    return Dense(in_features=features, out_features=features)


def moved(params: Params, renames: dict[str, str]) -> Params:
    return Params({key: params[renames.get(key, key)] for key in params})


def test_a_network_equals_itself_and_nothing_moves() -> None:
    network = tiny_llama()
    dna = extract_dna(network, initialise(network))
    comparison = compare(dna, dna)
    assert comparison.overall == pytest.approx(1.0, abs=1e-6)
    assert comparison.shifts == ()
    assert comparison.only_a == comparison.only_b == ()


def test_fresh_norms_and_weightless_layers_are_neutral() -> None:
    network = chain(RMSNorm(num_features=24), dense(), Softmax())
    dna = extract_dna(network, initialise(network))
    assert [s.neutral for s in dna.signatures.values()] == [True, False, True]
    assert list(compare(dna, dna).overlaps) == ["1.0.0.0"]


@pytest.mark.parametrize("name", [dtype.name for dtype in DTYPES])
def test_numeric_types_do_not_hide_that_two_networks_are_one(name: str) -> None:
    network = chain(dense(64), width=64)
    params = initialise(network, seed=3)
    scheme = Scheme.parse(name)
    packed = Params({k: WeightStore.from_packed(s.convert(scheme)[0]) for k, s in params.items()})
    other = extract_dna(network, initialise(network, seed=4))
    mine, theirs = extract_dna(network, params), extract_dna(network, packed)
    floor = {"binary": 0.7, "ternary": 0.8, "int2": 0.8, "uint2": 0.8}.get(name, 0.97)
    assert compare(mine, theirs).overall > floor
    assert abs(compare(theirs, other).overall) < 0.1


def test_different_models_are_near_zero_even_where_sketches_stand_for_them() -> None:
    network = chain(*(dense(200) for _ in range(8)), width=200)
    a, b = (extract_dna(network, initialise(network, seed=seed)) for seed in (1, 2))
    assert all(len(s.vector) == SKETCH for s in a.signatures.values())
    comparison = compare(a, b)
    assert max(map(abs, comparison.overlaps.values())) < 5 / np.sqrt(SKETCH)
    assert comparison.shifts == ()


@pytest.mark.parametrize("seed", range(5))
def test_a_sketch_keeps_the_angle(seed: int) -> None:
    network = chain(dense(131), width=131)
    params = initialise(network, seed=seed)
    rng = np.random.default_rng(seed)
    noisy = {
        k: WeightStore.from_array(s.values() + rng.normal(0, 0.05, s.shape).astype(np.float32))
        for k, s in params.items()
    }
    exact = [np.concatenate([p[k].values().ravel() for k in params]).astype(np.float64) for p in (params, noisy)]
    cosine = exact[0] @ exact[1] / np.linalg.norm(exact[0]) / np.linalg.norm(exact[1])
    a, b = extract_dna(network, params), extract_dna(network, noisy)
    assert compare(a, b).overall == pytest.approx(cosine, abs=4 / np.sqrt(SKETCH))


def test_swapped_layers_are_found_at_their_new_places() -> None:
    network = chain(dense(), dense(), dense())
    params = initialise(network)
    swap = {f"{z}.0.0.0/{n}": f"{2 - z}.0.0.0/{n}" for z in (0, 2) for n in ("weight", "bias")}
    comparison = compare(extract_dna(network, params), extract_dna(network, moved(params, swap)))
    assert [(s.source, s.target) for s in comparison.shifts] == [("0.0.0.0", "2.0.0.0"), ("2.0.0.0", "0.0.0.0")]
    assert comparison.overlaps["1.0.0.0"] == pytest.approx(1.0, abs=1e-6)


def test_equal_layers_that_repeat_have_not_moved() -> None:
    network = chain(dense(), dense(), dense())
    params = initialise(network)
    same = moved(params, {f"{z}.0.0.0/{n}": f"0.0.0.0/{n}" for z in (1, 2) for n in ("weight", "bias")})
    dna = extract_dna(network, same)
    assert compare(dna, dna).shifts == ()


def test_unmatched_places_lower_the_overlap() -> None:
    long, short = chain(dense(), dense()), chain(dense())
    params = initialise(long)
    cut = {key: params[key] for key in short.param_specs()}
    comparison = compare(extract_dna(long, params), extract_dna(short, cut))
    assert comparison.only_a == ("1.0.0.0",)
    assert comparison.overall == pytest.approx(0.5, abs=1e-6)


def test_containers_are_compared_by_their_leaves() -> None:
    inner = Sequential(layers=(dense(), RMSNorm(num_features=24)))
    gate = Gate(in_features=24, out_features=2)
    network = chain(Parallel(branches=(inner, dense()), combine="filter", gate=gate))
    assert [leaf.path for leaf in leaves(network)] == ["0.0.0.0/0/0", "0.0.0.0/0/1", "0.0.0.0/1", "0.0.0.0/gate"]
    params = initialise(network)
    swap = {f"0.0.0.0/{a}/{n}": f"0.0.0.0/{b}/{n}" for a, b in (("0/0", "1"), ("1", "0/0")) for n in ("weight", "bias")}
    comparison = compare(extract_dna(network, params), extract_dna(network, moved(params, swap)))
    assert {(s.source, s.target) for s in comparison.shifts} == {
        ("0.0.0.0/0/0", "0.0.0.0/1"),
        ("0.0.0.0/1", "0.0.0.0/0/0"),
    }


def test_disabled_layers_have_no_signature() -> None:
    network = chain(dense(), dense())
    params = initialise(network)
    dna = extract_dna(dataclasses.replace(network, disabled=frozenset({Coord(1)})), params)
    assert list(dna.signatures) == ["0.0.0.0"]


def test_weights_that_are_not_finite_are_named() -> None:
    network = chain(dense())
    params = initialise(network)
    params["0.0.0.0/bias"].assign(np.full(24, np.nan, np.float32))
    with pytest.raises(VolumetricError, match=r"0\.0\.0\.0/bias"):
        extract_dna(network, params)


def test_a_threshold_out_of_range_is_refused() -> None:
    network = chain(dense())
    dna = extract_dna(network, initialise(network))
    with pytest.raises(SpecError, match=r"1\.5"):
        compare(dna, dna, shift=1.5)


def test_the_matrix_of_a_population_is_symmetric() -> None:
    network = chain(dense())
    matrix = similarity_matrix([extract_dna(network, initialise(network, seed=s)) for s in (0, 1, 0)])
    assert matrix[0, 2] == pytest.approx(1.0, abs=1e-6)
    assert (matrix == matrix.T).all()
    assert abs(matrix[0, 1]) < 0.2


def test_a_mean_that_weights_share_counts_no_more_than_its_size() -> None:
    """What falls into one bin has signs of its own: equal numbers would add up there otherwise."""
    network = chain(dense(131), width=131)
    params = initialise(network)
    draws = [np.random.default_rng(seed).normal(0.05, 0.1, (131, 131)).astype(np.float32) for seed in (0, 1)]
    a, b = ({**params, "0.0.0.0/weight": WeightStore.from_array(draw)} for draw in draws)
    cosine = np.vdot(*draws) / np.linalg.norm(draws[0]) / np.linalg.norm(draws[1])
    assert compare(extract_dna(network, a), extract_dna(network, b)).overall == pytest.approx(
        cosine, abs=4 / np.sqrt(SKETCH)
    )
