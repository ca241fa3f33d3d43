from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.evolution.test_dna import chain, dense
from volumetric.base.errors import ShapeError, SpecError
from volumetric.dtypes import Scheme
from volumetric.evolution.splice import SpliceConfig, fitness_share, merge, splice
from volumetric.layers import RMSNorm
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import save_model
from volumetric.network import initialise
from volumetric.network.weight_store import Params, WeightStore

TINY = Path(__file__).parents[1] / "fixtures/hf_tiny"
NETWORK = chain(dense(), RMSNorm(num_features=24), dense())
A, B = initialise(NETWORK, seed=1), initialise(NETWORK, seed=2)
KEY = "2.0.0.0/weight"


def test_a_plain_blend_is_the_weighted_mean() -> None:
    child = splice((NETWORK, A), (NETWORK, B), SpliceConfig(share=0.25, by_similarity=False))
    expected = A[KEY].values() + np.float32(0.25) * (B[KEY].values() - A[KEY].values())
    np.testing.assert_array_equal(child.params[KEY].values(), expected)


def test_unlike_layers_of_a_blend_stay_near_the_template() -> None:
    child = splice((NETWORK, A), (NETWORK, B))
    report = {layer.path: layer for layer in child.report}
    similarity = report["2.0.0.0"].similarity
    assert similarity is not None
    assert report["2.0.0.0"].share == pytest.approx(0.5 * (1 + similarity) / 2)
    assert report["1.0.0.0"].similarity is None  # fresh norms say nothing
    assert report["1.0.0.0"].share == 0.5


def test_equal_parents_give_an_equal_child() -> None:
    for mode in ("blend", "point", "uniform"):
        child = splice((NETWORK, A), (NETWORK, A), SpliceConfig(mode=mode))
        for key, store in A.items():
            np.testing.assert_array_equal(child.params[key].values(), store.values())


def test_a_point_cut_takes_the_end_from_the_second_parent() -> None:
    child = splice((NETWORK, A), (NETWORK, B), SpliceConfig(mode="point", share=0.25))
    flat = child.params[KEY].values().ravel()
    cut = flat.size - flat.size // 4
    np.testing.assert_array_equal(flat[:cut], A[KEY].values().ravel()[:cut])
    np.testing.assert_array_equal(flat[cut:], B[KEY].values().ravel()[cut:])


def test_uniform_takes_each_weight_from_one_parent_by_seed() -> None:
    config = SpliceConfig(mode="uniform", share=0.3, seed=7)
    first, again = (splice((NETWORK, A), (NETWORK, B), config).params[KEY].values() for _ in range(2))
    other = splice((NETWORK, A), (NETWORK, B), SpliceConfig(mode="uniform", share=0.3, seed=8)).params[KEY].values()
    from_b = first == B[KEY].values()
    assert ((first == A[KEY].values()) | from_b).all()
    assert 0.2 < from_b.mean() < 0.4
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_the_better_parent_has_the_larger_part() -> None:
    assert fitness_share(1.0, 3.0) == 0.75
    assert fitness_share(2.0, 2.0) == fitness_share(0.0, 0.0) == fitness_share(-2.0, -2.0) == 0.5
    assert fitness_share(-1.0, -4.0) < 0.5 < fitness_share(-4.0, -1.0)
    assert fitness_share(1.0, -1.0) < 0.5
    with pytest.raises(SpecError, match="nan"):
        fitness_share(float("nan"), 1.0)


@pytest.mark.parametrize(("mine", "theirs"), [("int4", "float64"), ("binary", "float8_e4m3fn"), ("float32", "ternary")])
def test_the_child_keeps_the_numeric_types_of_the_template(mine: str, theirs: str) -> None:
    a, b = (
        Params(
            {k: WeightStore.from_packed(s.convert(Scheme.parse(t))[0]) if "weight" in k else s for k, s in p.items()}
        )
        for t, p in ((mine, A), (theirs, B))
    )
    child = splice((NETWORK, a), (NETWORK, b))
    assert child.params[KEY].scheme == Scheme.parse(mine)
    assert a[KEY].scheme == Scheme.parse(mine)


def test_what_does_not_fit_stays_and_says_why() -> None:
    other = chain(dense(), dense(), dense())
    child = splice((NETWORK, A), (other, initialise(other)))
    report = {layer.path: layer.reason for layer in child.report}
    assert report == {"0.0.0.0": "", "1.0.0.0": "parent B has dense here", "2.0.0.0": ""}
    np.testing.assert_array_equal(child.params["1.0.0.0/weight"].values(), A["1.0.0.0/weight"].values())
    short = chain(dense())
    reasons = [layer.reason for layer in splice((NETWORK, A), (short, initialise(short))).report]
    assert reasons[1:] == ["parent B has no layer here"] * 2


def test_sizes_that_differ_are_named() -> None:
    a, b = chain(dense(24)), chain(dense(8), width=8)
    (layer,) = splice((a, initialise(a)), (b, initialise(b))).report
    assert layer.reason == "weight is (24, 24) in A and (8, 8) in B"


@pytest.mark.parametrize("field", [{"mode": "average"}, {"share": 1.5}])
def test_wrong_settings_are_refused(field: dict[str, object]) -> None:
    with pytest.raises(SpecError, match=str(next(iter(field.values())))):
        SpliceConfig(**field)  # pyright: ignore[reportArgumentType]  (wrong on purpose)


def test_a_merged_model_is_saved_and_read_again(tmp_path: Path) -> None:
    a = open_model(TINY / "llama")
    b = open_model(TINY / "llama")
    merged, report = merge(a, b, SpliceConfig(share=0.5, by_similarity=False))
    assert all(layer.share in (0.0, 0.5) for layer in report)
    save_model(tmp_path / "merged", merged, "hf")
    again = open_model(tmp_path / "merged")
    for key, store in a.params.items():
        np.testing.assert_array_equal(again.params[key].values(), store.values())


def test_models_of_two_families_are_not_merged() -> None:
    with pytest.raises(ShapeError, match="the same architecture"):
        merge(open_model(TINY / "llama"), open_model(TINY / "gpt2"))
