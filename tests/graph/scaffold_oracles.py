"""Scaffolds, columns and a stack as another package computes them: its names and shapes brought to ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.graph.oracles import Change, Oracle, agalite, axon, gate_matrices, gates, past, same, turned
from volumetric.layers import (
    LSTM,
    MLSTM,
    SLSTM,
    Adapter,
    CausalConv1d,
    Column,
    LayerNorm,
    LayerSpec,
    PassThrough,
    PostUp,
    PostUpGated,
    PreUp,
    PreUpGated,
    Sequential,
)

FIXTURES = Path(__file__).parent.parent / "fixtures" / "scaffolds"
FLOAT64 = 2.0**-52
"""Epsilon of a column's norm there."""
WIDTH = 4
Names = Mapping[str, tuple[str, Change]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A layer with the names of parameters and states there, below what stands around it."""

    spec: LayerSpec
    params: Names
    states: Names = field(default_factory=dict)
    unlike: tuple[str, ...] = ()

    def below(self, ours: str, theirs: str, states: str) -> Part:
        """Return the part inside of another."""

        def moved(names: Names, there: str) -> Names:
            return {f"{ours}/{name}": (there + of, change) for name, (of, change) in names.items()}

        left = tuple(f"{ours}/{name}" for name in self.unlike)
        return Part(spec=self.spec, params=moved(self.params, theirs), states=moved(self.states, states), unlike=left)

    def around(self, spec: LayerSpec, names: Mapping[str, str], states: str, cell: str = "cell.") -> Part:
        """Return a scaffold with this core; parameters have the same change there as here: none."""
        inner = self.below("core", cell, states)
        own = {name: (of, same) for name, of in names.items()}
        return Part(spec=spec, params=own | dict(inner.params), states=inner.states, unlike=inner.unlike)

    def oracle(self, theirs: str = "blocks.0.", states: str = "") -> Oracle:
        """Return what tests read, of a part that is all there is."""
        return Oracle(
            spec=self.spec,
            params={ours: (theirs + of, change) for ours, (of, change) in self.params.items()},
            states={ours: (states + of, change) for ours, (of, change) in self.states.items()},
            unlike=frozenset(self.unlike),
            folder=FIXTURES,
        )


def lstm(width: int = WIDTH) -> Part:
    names = {f"{to}.{of}": (f"net.{of}_{to}_l0", same) for to in ("ih", "hh") for of in ("weight", "bias")}
    states = {name: (f"LSTMCell/{name}", lambda x: x[:, 0]) for name in "hc"}
    return Part(spec=LSTM(input_size=width, hidden_size=width), params=names, states=states)


def conv(kernel_size: int) -> Part:
    return Part(
        spec=CausalConv1d(channels=WIDTH, kernel_size=kernel_size),
        params={"weight": ("conv.weight", same), "bias": ("conv.bias", same)},
        states={"past": ("CausalConv1d/conv", past)},
    )


_CONV: Names = {f"conv.{of}": (f"conv1d_cell.conv.{of}", same) for of in ("weight", "bias")}


def slstm(width: int = WIDTH) -> Part:
    return Part(
        spec=SLSTM(embed_dim=width, num_heads=2, kernel_size=2),
        params={
            **{f"{g}.weight": (f"{g}gate.weight", turned) for g in "ifzo"},
            "r.weight": ("recurrent_kernel", gate_matrices),
            "bias": ("bias", gates),
            "norm.weight": ("outnorm.weight", same),
            **_CONV,
        },
        states={**{name: (f"sLSTMCell/{name}", same) for name in "ycnm"}, "past": ("sLSTMCell/conv", past)},
    )


def mlstm(width: int) -> Part:
    return Part(
        spec=MLSTM(embed_dim=width, num_heads=2, kernel_size=2),
        params={
            **{f"{g}.{of}": (f"{g}gate.{of}", same) for g in "if" for of in ("weight", "bias")},
            "norm.weight": ("outnorm.weight", same),
            **_CONV,
        },
        states={
            "C": ("mLSTMCell/c", same),
            "n": ("mLSTMCell/n", lambda n: n[..., 0]),
            "m": ("mLSTMCell/m", lambda m: m[..., 0, 0]),
            "past": ("mLSTMCell/conv", past),
        },
    )


def other(oracle: Oracle, cell: str) -> Part:
    """A cell that has an oracle of its own."""
    states = {ours: (f"{cell}/{of}", change) for ours, (of, change) in oracle.states.items()}
    return Part(spec=oracle.spec, params=oracle.params, states=states, unlike=tuple(oracle.unlike))


_PRE = {
    "norm.weight": "norm.weight",
    "skip": "learnable_skip",
    **{f"{ours}.{of}": f"{ours}_proj.{of}" for ours in ("in", "out") for of in ("weight", "bias")},
}


def _gate(name: str) -> dict[str, str]:
    matrices = {f"{name}.{m}.weight": f"{name}.{m.capitalize()}.weight" for m in ("wr", "ur", "wz", "uz", "wg", "ug")}
    return matrices | {f"{name}.bias": f"{name}.bg"}


def _post(norm1: str, norm2: str, up: str, down: str) -> dict[str, str]:
    own = {f"{ours}.{of}": f"{there}.{of}" for ours, there in (("up", up), ("down", down)) for of in ("weight", "bias")}
    return own | {"norm1.weight": f"{norm1}.weight", "norm2.weight": f"{norm2}.weight"}


_POST = _post("norm", "ffn_norm", "out1", "out2")
_POST_GATED = _post("norm1", "norm2", "ffn_in", "ffn_out") | _gate("gate1") | _gate("gate2")


def passed(core: Part, states: str = "PassThroughBlock_0/") -> Part:
    return core.around(PassThrough(core=core.spec), {}, states)


def post_up(core: Part, states: str = "PostUpBlock_0/") -> Part:
    return core.around(PostUp(embed_dim=WIDTH, core=core.spec), _POST, states)


def post_up_gated(core: Part) -> Part:
    return core.around(PostUpGated(embed_dim=WIDTH, core=core.spec), _POST_GATED, "PostUpGatedBlock_0/")


def pre_up(core: Part, factor: float = 2.0, states: str = "PreUpBlock_0/", *, active: bool | None = None) -> Part:
    spec = PreUp(embed_dim=WIDTH, factor=factor, activate_input=active, core=core.spec)
    return core.around(spec, _PRE, states)


def _pre_up_gated() -> Part:
    core = mlstm(8)
    return core.around(PreUpGated(embed_dim=WIDTH, core=core.spec), _PRE | _gate("gate"), "PreUpGatedBlock_0/")


_ADAPTER = {
    "norm.weight": "ln.weight",
    "norm.bias": "ln.bias",
    "gate": "gate",
    **{f"{n}.{of}": f"{n}.{of}" for n in ("up", "down") for of in ("weight", "bias")},
}


def _adapters() -> dict[str, Part]:
    """The cell of the block inside is told once more below the adapter, and that is the one which is kept."""
    core = lstm()
    inner = core.below("core", "cell.", "AdapterBlock_0/wrapped/")
    within = Part(
        spec=PostUp(embed_dim=WIDTH, core=core.spec),
        params=dict(inner.params) | {ours: (f"wrapped_block.{of}", same) for ours, of in _POST.items()},
        states=inner.states,
    )
    alone = Part(spec=PassThrough(core=core.spec), params=inner.params, states=inner.states)
    plain = Adapter(embed_dim=WIDTH, bottleneck=3, core=within.spec)
    channels = Adapter(embed_dim=WIDTH, bottleneck=3, activation="silu", per_channel=True, core=alone.spec)
    return {
        "postup_lstm": within.around(plain, _ADAPTER, "", cell=""),
        "silu_channels": alone.around(channels, _ADAPTER, "", cell=""),
    }


_COLUMN = {
    "norm.weight": "boundary_norm.weight",
    "prior.context": "router.context",
    "prior.keys": "router.keys",
    "prior.q.weight": "router.Wq.weight",
    "prior.k.weight": "router.Wk.weight",
    **{f"mix.{n}.weight": f"e_mixer.W{n}.weight" for n in "qkv"},
    "mix.out.weight": "e_mixer.out.weight",
    "mix.bias": "e_mixer.q_bias",
    **{
        f"head.{n}.{of}": f"head.{there}.{of}"
        for n, there in (("up", "fc1"), ("down", "fc2"))
        for of in ("weight", "bias")
    },
    "alpha": "alpha_main",
    "alpha_head": "alpha_col",
}
_REFINER = {"refine.q.weight": "refiner.Wq_tok.weight", "refine.keys": "refiner.k_loc"}


def column(spec: Column, *experts: Part, at: int = 0) -> Part:
    names = {} if len(experts) == 1 else _COLUMN | (_REFINER if spec.refine else {})
    inner = [part.below(str(i), f"experts.{i}.", f"ColumnBlock_{at}/expert_") for i, part in enumerate(experts)]
    params = {ours: (of, same) for ours, of in names.items()}
    for part in inner:
        params |= dict(part.params)
    return Part(spec=spec, params=params, states={name: of for part in inner for name, of in part.states.items()})


def _column(*experts: Part, **fields: object) -> Part:
    specs = tuple(part.spec for part in experts)
    return column(Column(embed_dim=WIDTH, experts=specs, eps=FLOAT64, **fields), *experts)  # pyright: ignore[reportArgumentType]  (fields of Column)


def _two() -> Part:
    return _column(post_up(lstm()), pre_up(mlstm(8), states="PreUpBlock_1/"))


def _top() -> Part:
    experts = passed(lstm()), post_up(slstm(), "PostUpBlock_1/"), passed(conv(2), "PassThroughBlock_2/")
    fields = {"key_dim": 5, "temperature": 0.7, "top_k": 2, "refine": 0.5, "refine_dim": 3, "refine_temperature": 1.3}
    return _column(*experts, **fields)


def _no_refiner() -> Part:
    return _column(passed(lstm()), passed(lstm(), "PassThroughBlock_1/"), refine=0.0, scale="full")


def _stack() -> Oracle:
    """Two layers and the norm behind them."""
    first = post_up_gated(slstm())
    experts = post_up(lstm()), passed(conv(2), "PassThroughBlock_1/")
    second = column(Column(embed_dim=WIDTH, experts=tuple(part.spec for part in experts), eps=FLOAT64), *experts, at=1)
    parts = first.below("0", "blocks.0.", ""), second.below("1", "blocks.1.", "")
    norm: Names = {f"2/{of}": (f"norm.{of}", same) for of in ("weight", "bias")}
    whole = Part(
        spec=Sequential(layers=(first.spec, second.spec, LayerNorm(num_features=WIDTH))),
        params=dict(parts[0].params) | dict(parts[1].params) | dict(norm),
        states=dict(parts[0].states) | dict(parts[1].states),
    )
    return whole.oracle("")


_AXON = other(axon("linear", "linear", width=WIDTH), "AxonCell")
_BOTH: dict[str, Part] = {
    "passthrough_lstm": passed(lstm()),
    "passthrough_conv": passed(conv(3)),
    "preup_mlstm": pre_up(mlstm(8)),
    "preup_slstm": pre_up(slstm(6), 1.5),
    "preup_gated_mlstm": _pre_up_gated(),
    "postup_axon": post_up(_AXON),
    "postup_slstm": post_up(slstm()),
    "postup_gated_lstm": post_up_gated(lstm()),
    "adapter_postup_lstm": _adapters()["postup_lstm"],
    "column_one": _column(post_up(lstm())),
    "column_two": _two(),
    "column_no_refiner": _no_refiner(),
}
_RESET: dict[str, Part] = {
    "preup_lstm_raw": pre_up(lstm(8), active=False),
    "adapter_silu_channels": _adapters()["silu_channels"],
    "column_top2_of3": _top(),
    # As for the cell alone: a reset restarts the number of the row here.
    "postup_gated_agalite": post_up_gated(
        other(agalite(2, width=WIDTH, unlike=frozenset({"tilde_k", "tilde_v", "tick"})), "AGaLiTeCell")
    ),
}
SCAFFOLD_ORACLES: dict[str, Oracle] = {
    **{f"{name}_{resets}": part.oracle() for name, part in _BOTH.items() for resets in ("none", "random")},
    **{f"{name}_random": part.oracle() for name, part in _RESET.items()},
    "stack_two_layers": _stack(),
}
"""Case → where it is."""
