"""Lowering and fusing: what the plans say, checked as text, on the null device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.examples import CASES
from tests.networks import tiny_llama
from volumetric.base.errors import GenerationError, ShapeError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import (
    LSTM,
    Dense,
    Embedding,
    Gate,
    LayerNorm,
    LayerSpec,
    Parallel,
    PositionEmbedding,
    Residual,
    RMSNorm,
    Sequential,
    Softcap,
    SwiGLU,
)
from volumetric.network import OUTPUT, Network, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.run import RunOptions, lower
from volumetric.run.graph.network_graph import NATIVE, open_graph
from volumetric.run.graph.partition import row_wise


def chain(*layers: LayerSpec, links: tuple[Link, ...] = (), disabled: frozenset[Coord] = frozenset()) -> Network:
    return Network(
        grid=Grid(len(layers)),
        layers={Coord(z): layer for z, layer in enumerate(layers)},
        links=links,
        disabled=disabled,
        input_shape=(6,),
        input_dtype="float32",
    )


def dense(**fields) -> Dense:
    return Dense(in_features=6, out_features=6, **fields)


def ops(network: Network) -> list[str]:
    return [node.op for node in open_graph(lower(network)).nodes]


def test_a_transformer_layer_is_five_nodes() -> None:
    graph = open_graph(lower(tiny_llama(blocks=1)))
    assert [node.op for node in graph.nodes] == [
        "lookup", "linear", "attend", "linear", "linear", "linear", "linear",
    ]  # fmt: skip
    rope = graph.nodes[2].attrs["rope"]
    assert str(graph).splitlines()[3:8] == [
        (
            "%8[T×64] = linear(%2, 1.0.0.1/q.weight, 1.0.0.1/k.weight, 1.0.0.1/v.weight, 1.0.0.0/weight) norm=rms "
            "norm_eps=1e-06 combine=concat activation=linear parts=(32, 16, 16) @1.0.0.1"
        ),
        (
            "%12[T×32], %13[held×2×8] '1.0.0.1/k', %14[held×2×8] '1.0.0.1/v' = attend(%8, %9, 1.0.0.1/k, 1.0.0.1/v) "
            "heads=4 kv_heads=2 head_dim=8 scale=0.35355339059327373 causal=True temperature_every=8192 "
            f"qk_norm_eps=1e-06 rope={rope} @1.0.0.1"
        ),
        (
            "%15[T×32] = linear(%12, %2, 1.0.0.1/o.weight) combine=concat activation=linear residual=True parts=(32,) "
            "@1.0.0.1 tail"
        ),
        (
            "%20[T×91] = linear(%15, 1.0.0.4/gate.weight, 1.0.0.4/up.weight, 1.0.0.3/weight) norm=rms norm_eps=1e-06 "
            "combine=gated activation=silu parts=(91, 91) @1.0.0.4 tail"
        ),
        (
            "%21[T×32] = linear(%20, %15, 1.0.0.4/down.weight) combine=concat activation=linear residual=True "
            "parts=(32,) @1.0.0.4 tail"
        ),
    ]
    assert list(lower(tiny_llama(blocks=1)).states) == ["1.0.0.1/k", "1.0.0.1/v"]


def test_the_head_uses_the_embedding_weights() -> None:
    plan = lower(tiny_llama())
    assert plan.steps[-1].params["weight"] == plan.steps[0].params["weight"] == "0.0.0.0/weight"


def test_only_steps_after_the_last_attention_are_tail() -> None:
    steps = open_graph(lower(tiny_llama(blocks=3))).nodes
    last = max(i for i, step in enumerate(steps) if step.op == "attend")
    assert [step.tail for step in steps] == [i > last for i in range(len(steps))]


def test_a_norm_that_something_else_reads_too_stays_a_step() -> None:
    assert ops(chain(RMSNorm(num_features=6), dense())) == ["linear"]
    assert ops(chain(dense(), RMSNorm(num_features=6))) == ["linear", "norm"]
    assert ops(chain(RMSNorm(num_features=6), dense(), Residual(source="0.0.0.0"))) == ["norm", "linear"]
    assert ops(chain(LayerNorm(num_features=6), dense(), Residual(source="input"))) == ["linear"]


def test_a_norm_feeds_every_branch_that_multiplies() -> None:
    network = chain(RMSNorm(num_features=6), Parallel(branches=(dense(), dense()), combine="add"))
    nodes = open_graph(lower(network)).nodes
    assert [node.op for node in nodes] == ["linear", "linear"]
    assert all(node.attrs["norm"] == "rms" for node in nodes)


def test_a_sum_is_not_folded_where_its_other_side_comes_later_or_the_product_is_needed() -> None:
    later = chain(dense(), dense(), Residual(source="0.0.0.0"))
    assert ops(later) == ["linear", "linear"]
    needed = chain(dense(), Residual(source="input"), Residual(source="0.0.0.0"))
    assert ops(needed) == ["linear", "binary", "binary"]
    twice = chain(dense(), Residual(source="0.0.0.0"))
    assert ops(twice) == ["linear", "binary"]


def test_two_products_and_their_sum_are_two_steps() -> None:
    network = chain(Parallel(branches=(dense(), dense()), combine="add"))
    graph = open_graph(lower(network))
    assert [node.op for node in graph.nodes] == ["linear", "linear"]
    first, second = graph.nodes
    assert second.input_by_role("x") == graph.inputs[0]
    assert second.input_by_role("residual") == first.outputs[0]


def test_average_concat_and_softcap() -> None:
    assert ops(chain(Parallel(branches=(dense(), dense()), combine="avg"))) == ["linear", "linear", "unary"]
    assert ops(chain(Parallel(branches=(dense(), dense())))) == ["linear", "linear", "concat"]
    [capped] = open_graph(lower(chain(dense(), Softcap(cap=3.0)))).nodes
    assert capped.op == "linear"
    assert capped.attrs["softcap"] == 3.0
    assert ops(chain(SwiGLU(in_features=6, hidden_features=9), Softcap(cap=3.0), Softcap(cap=3.0))) == [
        "linear", "linear", "unary", "unary", "unary",
    ]  # fmt: skip


def test_disabled_slots_leave_no_step() -> None:
    network = chain(dense(), dense(), Residual(), disabled=frozenset({Coord(1)}))
    plan = lower(network)
    assert [step.op for step in plan.steps] == ["dense", "add"]
    assert plan.steps[1].inputs == (1, 1)


def test_links_add_and_share() -> None:
    links = (
        Link(kind="activation", source=Coord(0), target=Coord(2), combine="add"),
        Link(kind="shared", source=Coord(0), target=Coord(1)),
    )
    plan = lower(chain(dense(), dense(), dense(), links=links))
    assert [step.op for step in plan.steps] == ["dense", "dense", "add", "dense"]
    assert plan.steps[1].params == plan.steps[0].params
    assert set(plan.params) == {"0.0.0.0/weight", "0.0.0.0/bias", "2.0.0.0/weight", "2.0.0.0/bias"}


def network_of(name: str) -> Network:
    """The layer of a case alone in a sequential; the first axis of its input is free."""
    spec, shape = CASES[name]
    return Network(
        grid=Grid(1),
        layers={Coord(0): Sequential(layers=(spec,))},
        input_shape=shape[1:],
        input_dtype="int32" if isinstance(spec, Embedding) else "float32",
    )


@pytest.mark.parametrize("name", CASES)
def test_every_layer_lowers_to_a_plan_whose_output_has_its_shape(name: str) -> None:
    spec, shape = CASES[name]
    plan = lower(network_of(name))
    assert plan.values[plan.outputs[OUTPUT]].shape[1:] == spec.output_shape(shape)[1:]


@pytest.mark.parametrize("name", ["conv2d", "lstm", "kmeans", "entmax", "filter-nested", "grid-scatter"])
def test_a_layer_without_a_row_wise_form_is_told(name: str) -> None:
    assert not row_wise(lower(network_of(name)), NATIVE - {"recurrence", "mix"})
    assert row_wise(lower(network_of("lstm")), NATIVE)


def test_layers_without_a_form_of_their_own_are_one_step() -> None:
    for name in ("conv2d", "lstm", "kmeans", "entmax", "filter-nested", "grid-scatter"):
        plan = lower(network_of(name))
        assert [step.op for step in plan.steps] == [CASES[name][0].kind]
        assert len(plan.params) == len(CASES[name][0].tensors())


def test_no_step_before_a_layer_that_remembers_runs_on_the_last_row_alone() -> None:
    lstm = LSTM(input_size=6, hidden_size=6)
    expert = Parallel(branches=(lstm,), combine="filter", gate=Gate(in_features=6, out_features=1))
    for layer in (lstm, expert, PositionEmbedding(num_embeddings=9, embedding_dim=6)):
        assert [step.tail for step in lower(chain(dense(), layer, dense())).steps] == [False, False, True]


def test_inputs_are_checked_before_anything_runs() -> None:
    executable = ReferenceDevice().compile(lower(tiny_llama()), initialise(tiny_llama()), RunOptions(context=4))
    state = executable.new_state()
    for bad in (np.full(3, 0.5, np.float32), np.zeros((2, 2), np.int32), np.zeros(0, np.int32)):
        with pytest.raises(ShapeError):
            executable.forward(state, bad)
    with pytest.raises(GenerationError, match="must be in"):
        executable.forward(state, np.array([-1]))
    executable.forward(state, np.zeros(3, np.int64))
    with pytest.raises(GenerationError, match="3 tokens in the context and 2 more do not fit its 4"):
        executable.forward(state, np.zeros(2, np.int32))
    with pytest.raises(GenerationError, match="cannot trim"):
        state.trim(4)
