"""Stacks: what patterns name, what presets make, and stacks inside of other networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.builders.test_builders import normal, run
from tests.devices import device
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.builders import auto_stack, insert, presets, sequential, stack, transformer
from volumetric.builders.presets import PRESETS, presets_of
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.evolution import extract_dna
from volumetric.evolution.dna_comparison import compare
from volumetric.evolution.grids.grid_config import GridMutationConfig
from volumetric.evolution.grids.grid_genome import GridGenome, GridInnovations
from volumetric.evolution.grids.grid_mutation import mutate
from volumetric.evolution.splice import SpliceConfig, splice
from volumetric.layers import (
    LSTM,
    Axon,
    Column,
    Dense,
    Discrete,
    LayerNorm,
    LayerSpec,
    MultiHeadAttention,
    PassThrough,
    PostUpGated,
    PreUpGated,
    Residual,
)
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.network.network_json import network_from_json
from volumetric.run import RunOptions, lower

TABLE = {
    "A": ("post_up_gated", "axon"),
    "X": ("post_up_gated", "xl_attention"),
    "M": ("pre_up_gated", "mlstm"),
    "S": ("post_up_gated", "slstm"),
    "Ag": ("post_up_gated", "agalite"),
    "L": ("pass_through", "lstm"),
    "C": ("pass_through", "causal_conv1d"),
}


def test_presets_are_those_of_the_table() -> None:
    assert set(TABLE) == set(PRESETS)
    for token, (scaffold, core) in TABLE.items():
        made = PRESETS[token].at(16)
        assert (made.kind, made.children()["core"].kind) == (scaffold, core)
        assert made.output_shape((-1, 16)) == (-1, 16)
    lstm = initialise(stack(8, ["L"], norm=False))
    for name, store in lstm.items():
        values = store.values()
        if name.endswith("bias"):
            np.testing.assert_array_equal(values, 1)
        else:
            np.testing.assert_allclose(values.T @ values, np.eye(8), atol=1e-5)


def test_patterns_name_presets() -> None:
    assert [of.token for of in presets_of("AXMS")] == ["A", "X", "M", "S"]
    assert [of.token for of in presets_of("Ag A M X")] == ["Ag", "A", "M", "X"]
    for pattern, message in (
        ("AQ", "'Q' at index 1 is not a preset"),
        ("^A", "at index 0 is not a preset"),
        ("", "at least one preset"),
        (" ", "at least one preset"),
        (3, "a pattern must be a string"),
    ):
        with pytest.raises(SpecError, match=message):
            presets_of(pattern)  # pyright: ignore[reportArgumentType]


def test_auto_stack_makes_a_column_a_layer() -> None:
    network = auto_stack(16, 2)
    columns = [spec for spec in network.layers.values() if isinstance(spec, Column)]
    assert len(columns) == 2
    for column in columns:
        cores = [(expert.kind, expert.children()["core"].kind) for expert in column.experts]
        assert cores == [TABLE[token] for token in "AXMS"]
    assert isinstance(network.layers[Coord(2)], LayerNorm)
    mixed = list(auto_stack(16, 2, ["S", "AXMSL"], norm=False).layers.values())
    assert isinstance(mixed[0], PostUpGated)
    assert isinstance(mixed[1], Column)
    assert len(mixed[1].experts) == 5
    with pytest.raises(SpecError, match="1 patterns for 2 layers"):
        auto_stack(16, 2, ["S"])
    with pytest.raises(SpecError, match="depth must be a whole number above 0"):
        auto_stack(16, 0)
    with pytest.raises(SpecError, match="layer 1 has no cells"):
        stack(16, ["S", []])
    with pytest.raises(SpecError, match="layers must be a list"):
        stack(16, "AX")
    with pytest.raises(SpecError, match="dense in layer 0 maps"):
        stack(16, [Dense(in_features=16, out_features=3)])
    with pytest.raises(SpecError, match="3 heads do not divide a width of 16"):
        stack(16, [presets.SLSTM(num_heads=3)])
    with pytest.raises(SpecError, match="embed and inputs"):
        stack(16, ["A"], embed=3, inputs=4)
    with pytest.raises(SpecError, match="tied needs classes equal to embed"):
        stack(16, ["A"], embed=3, classes=4, tied=True)


def test_projections_that_remember_are_those_of_cores_which_have_any() -> None:
    for token, kind in (("M", "mlstm"), ("S", "slstm"), ("X", "xl_attention")):
        core = PRESETS[token].at(16).children()["core"]
        remembering = next(iter(stack(16, [f"{token}^"]).layers.values())).children()["core"]
        assert core.kind == remembering.kind == kind
        assert remembering == replace(core, projection="axon")  # pyright: ignore[reportArgumentType]  (a dataclass)
    plain, other = (presets_of(pattern)[0].at(16) for pattern in ("M", "M^"))
    assert isinstance(plain, PreUpGated)
    assert isinstance(other, PreUpGated)
    assert (plain.activates, other.activates) == (False, True)
    for token in ("A", "Ag", "L", "C"):
        with pytest.raises(SpecError, match=rf"{token}\^, but the core of this preset has no projections"):
            stack(16, [f"{token}^"])


def test_a_stack_is_a_network_like_others() -> None:
    network = stack(8, [[presets.Axon(), presets.CausalConv()], "L"], embed=11, classes=11, tied=True)
    assert network_from_json(network.to_json()) == network
    params = initialise(network, 1)
    assert run(network, params, np.arange(5, dtype=np.int32)).shape == (5, 11)
    assert "4.0.0.0/weight" not in params
    mine, again, other = (extract_dna(network, initialise(network, seed)) for seed in (1, 1, 2))
    assert {"1.0.0.0", "1.0.0.0/0", "1.0.0.0/0/core", "1.0.0.0/1/core", "2.0.0.0/core"} <= set(mine.signatures)
    assert compare(mine, again).overall == pytest.approx(1, abs=1e-6)
    assert compare(mine, other).overall < 0.7
    half = stack(8, [["AC", "L"]][0], embed=11, classes=11)
    assert half.layers == stack(8, ["AC", "L"], embed=11, classes=11).layers


def twofold(width: int) -> Network:
    """Two planes with slots, a residual to each, and a shared weight."""
    layers: dict[Coord, LayerSpec] = {
        Coord(0): Dense(in_features=width, out_features=width, activation="tanh"),
        Coord(0, slot=1): Residual(source="input"),
        Coord(1): Dense(in_features=width, out_features=width, activation="tanh"),
        Coord(1, slot=1): Residual(source="0.0.0.1"),
    }
    links = (Link(kind="shared", source=Coord(0), target=Coord(1)),)
    return Network(grid=Grid(2, slots=2), layers=layers, links=links, input_shape=(width,), input_dtype="float32")


@pytest.mark.parametrize("inner", [stack(6, ["L", "C"]), twofold(6)])
def test_an_inserted_network_stands_between_encoder_and_head(inner: Network) -> None:
    outer = twofold(6)
    weights = initialise(outer, 1), initialise(inner, 2)
    both, params = insert(outer, weights[0], inner, weights[1], before=Coord(1))
    assert len(both.layers) == len(outer.layers) + len(inner.layers)
    front = Network(grid=Grid(1, slots=2), layers={c: s for c, s in outer.layers.items() if c.z == 0},
                    input_shape=(6,), input_dtype="float32")  # fmt: skip
    x = normal(5, 6)
    middle = run(inner, weights[1], run(front, weights[0], x))
    dense = weights[0]["0.0.0.0/weight"].values(), weights[0]["0.0.0.0/bias"].values()
    head = np.tanh(middle @ dense[0].T + dense[1])
    np.testing.assert_allclose(run(both, params, x), head + run(front, weights[0], x), rtol=0, atol=1e-5)
    assert params["0.0.0.0/weight"] is weights[0]["0.0.0.0/weight"]


def test_a_stack_between_a_transformers_last_block_and_its_head() -> None:
    outer, inner = transformer(17, width=8, blocks=1, heads=2), stack(8, ["A"])
    both, params = insert(outer, initialise(outer), inner, initialise(inner), before=Coord(2))
    kinds = [spec.kind for spec in both.layers.values()]
    assert kinds[-5:] == ["residual", "post_up_gated", "layer_norm", "rms_norm", "dense"]
    assert both.links[0].target == Coord(4, slot=1)
    assert run(both, params, np.arange(4, dtype=np.int32)).shape == (4, 17)


def test_what_cannot_be_inserted_says_why() -> None:
    outer, inner = sequential(4, 2, hidden=(6,)), stack(6, ["L"])
    params = initialise(outer), initialise(inner)
    for network, of, before, message in (
        (outer, inner, Coord(7), "there is no layer at 7.0.0.0"),
        (outer, inner, Coord(0), "cannot insert before 0.0.0.0"),
        (twofold(6), inner, Coord(1, slot=1), "cannot insert before 1.0.0.1"),
    ):
        with pytest.raises(SpecError, match=message):
            insert(network, params[0], of, params[1], before=before)
    with pytest.raises(ShapeError, match=r"1\.0\.0\.0 reads \[T, 6\]"):
        insert(outer, params[0], stack(5, ["L"]), params[1], before=Coord(1))
    named = Network(grid=inner.grid, layers=inner.layers, outputs={"first": Coord(0)}, input_shape=(6,),
                    input_dtype="float32")  # fmt: skip
    with pytest.raises(UnsupportedError, match="as first, cannot be inserted"):
        insert(outer, params[0], named, params[1], before=Coord(1))


def test_scaffolds_say_what_does_not_fit() -> None:
    lstm = LSTM(input_size=6, hidden_size=6)
    for make, message in (
        (lambda: PostUpGated(embed_dim=0, core=lstm), "embed_dim must be a whole number above 0"),
        (lambda: PostUpGated(embed_dim=6, factor=0.01, core=lstm), "must be a width of at least 1"),
        (lambda: PreUpGated(embed_dim=6, factor=float("nan"), core=lstm), "must be a width of at least 1"),
        (lambda: PassThrough(core=Residual()), "a residual cannot be the core"),
        (lambda: PassThrough(core=6), "core must be a layer, got 6"),  # pyright: ignore[reportArgumentType]
        (lambda: Column(embed_dim=6, experts=()), "at least one expert"),
        (lambda: Column(embed_dim=6, experts=(lstm,), top_k=2), "top_k must be at most the 1 experts, got 2"),
        (lambda: Column(embed_dim=6, experts=(lstm,), temperature=0.0), "temperature must be a number above 0"),
        (lambda: Column(embed_dim=6, experts=(lstm,), refine=-1.0), "refine must be a number of at least 0"),
        (lambda: LSTM(input_size=6, hidden_size=6, fresh="ones"), "fresh must be"),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(SpecError, match=message):
            make()
    for spec, message in (
        (PostUpGated(embed_dim=5, core=lstm), "core of post_up_gated: lstm expects rows of 6"),
        (PostUpGated(embed_dim=6, core=Dense(in_features=6, out_features=5)), "maps"),
        (PreUpGated(embed_dim=6, core=lstm), "core of pre_up_gated: lstm expects rows of 6"),
        (Column(embed_dim=6, experts=(lstm, Dense(in_features=6, out_features=5))), "expert 1 of column: maps"),
    ):
        with pytest.raises(ShapeError, match=message):
            spec.output_shape((-1, spec.embed_dim))
    assert not PassThrough(core=Discrete(function="sign")).contextual
    assert PassThrough(core=Axon(in_features=2, out_features=2)).takes_resets
    assert PassThrough(core=MultiHeadAttention(embed_dim=4, num_heads=2)).contextual


def test_stacks_are_mutated_and_crossed() -> None:
    network = stack(8, [["A", "C"], "L"], inputs=3, classes=2)
    parents = [(network, initialise(network, seed)) for seed in (1, 2)]
    child = splice(parents[0], parents[1], SpliceConfig(mode="uniform", share=0.5))
    crossed = {layer.path for layer in child.report if layer.share > 0}
    assert {"1.0.0.0", "1.0.0.0/0", "1.0.0.0/0/core", "1.0.0.0/1/core", "2.0.0.0/core"} <= crossed
    key = "1.0.0.0/0/gate1.wr.weight"
    mine, other, made = (of[key].values() for of in (parents[0][1], parents[1][1], child.params))
    assert ((made == mine) | (made == other)).all()
    assert (made != mine).any()
    assert (made != other).any()
    genome = GridGenome.first(network, parents[0][1])
    changed = mutate(genome, GridMutationConfig(layer_rate=1.0), GridInnovations(next=9), np.random.default_rng(0))
    assert np.isfinite(run(changed.network, changed.params, normal(5, 3))).all()
    assert any((changed.params[key].values() != parents[0][1][key].values()).any() for key in parents[0][1])


@pytest.mark.thorough
def test_a_language_model_with_packed_weights_goes_on_token_by_token() -> None:
    network = stack(32, ["AC"], embed=19, classes=19)
    params = initialise(network, 3)
    network.morph(params, "int8:g32")
    options = RunOptions(context=64, compute="float32", kv_dtype="float32")
    fast, exact = (of.compile(lower(network), params, options) for of in (device("cpu"), ReferenceDevice()))
    states = fast.new_state(), exact.new_state()
    ids = np.random.default_rng(1).integers(0, 19, 9).astype(np.int32)
    for part in (ids[:6], ids[6:7], ids[7:]):
        got, want = (of.forward(state, part, last_only=False) for of, state in zip((fast, exact), states, strict=True))
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * np.abs(want).max())
    fast.close()
