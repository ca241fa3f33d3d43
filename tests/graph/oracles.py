"""Cells as another package computes them: its names and shapes brought to ours. See tests/fixtures/cells/README.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import MLSTM, SLSTM, AGaLiTe, Axon, CausalConv1d, LayerSpec, XLAttention
from volumetric.layers.axon import Mix

FIXTURES = Path(__file__).parent.parent / "fixtures" / "cells"
Change: TypeAlias = Callable[[Array], Array]


def same(x: Array) -> Array:
    return x


def turned(x: Array) -> Array:
    """Matrices ``[…, in, out]`` as ``[…, out, in]``."""
    return np.swapaxes(x, -1, -2)


def past(x: Array) -> Array:
    """Without the row that is never read."""
    return x[:, 1:]


def gates(x: Array) -> Array:
    """``[heads, 4, …]`` with the gates in front."""
    return x.swapaxes(0, 1)


def gate_matrices(x: Array) -> Array:
    """``[heads, 4 · width, width]`` likewise."""
    heads, _, width = x.shape
    return gates(x.reshape(heads, 4, width, width))


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """A layer, and where its parameters and states are: name → name there, and what is done to it.

    States that are `unlike` are others there behind the window, on purpose.
    """

    spec: LayerSpec
    params: dict[str, tuple[str, Change]]
    states: dict[str, tuple[str, Change]]
    unlike: frozenset[str] = frozenset()
    folder: Path = FIXTURES

    def load(self, case: str) -> tuple[dict[str, Array], dict[str, Array]]:
        """Parameters by our names, and the rest; of states and gradients as ``state0/…``, ``state1/…``, ``grad/…``."""
        with np.load(self.folder / f"{case}.npz") as file:
            of = {name: file[name].astype(np.float64) for name in file.files}
        params = {ours: change(of[f"param/{name}"]) for ours, (name, change) in self.params.items()}
        rest = {name: of[name] for name in ("x", "resets", "y", "cotangent") if name in of}
        for prefix in ("state0", "state1", "grad/state0"):
            for ours, (name, change) in self.states.items():
                if f"{prefix}/{name}" in of and not (prefix == "state1" and ours in self.unlike):
                    rest[f"{prefix}/{ours}"] = change(of[f"{prefix}/{name}"])
        for ours, (name, change) in self.params.items():
            if f"grad/param/{name}" in of:
                rest[f"grad/{ours}"] = change(of[f"grad/param/{name}"])
        if "grad/x" in of:
            rest["grad/x"] = of["grad/x"]
        return params, rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered(Oracle):
    """Attention that remembers rows there, and here what keys and values were made of them.

    All cases begin with a reset, so that nothing of the memory before them matters.
    """

    def load(self, case: str) -> tuple[dict[str, Array], dict[str, Array]]:
        params, rest = Oracle.load(self, case)
        with np.load(FIXTURES / f"{case}.npz") as of:
            for prefix in ("state0", "state1"):
                memory, segments = of[f"{prefix}/mem"].astype(np.float64), of[f"{prefix}/mem_seg"]
                own = np.cumprod((segments[:, ::-1] == segments[:, -1:]) & (segments[:, ::-1] >= 0), axis=1)[:, ::-1]
                rest[f"{prefix}/age"] = own.sum(1, keepdims=True).astype(np.float64)
                for name in ("keys", "values"):
                    made = memory @ params[f"{name[0]}.weight"].T + params[f"{name[0]}.bias"]
                    rest[f"{prefix}/{name}"] = made * own[..., None]
        return params, rest


_CONV = {f"conv.{of}": (f"conv1d_cell.conv.{of}", same) for of in ("weight", "bias")}
_GATES = {f"{g}.weight": (f"{g}gate.weight", turned) for g in "ifzo"}
_SLSTM = {
    **_GATES,
    "r.weight": ("recurrent_kernel", gate_matrices),
    "bias": ("bias", gates),
    "norm.weight": ("outnorm.weight", same),
}
_SLSTM_STATES = {name: (name, same) for name in ("y", "c", "n", "m")}


def _slstm(*, conv: bool) -> Oracle:
    return Oracle(
        spec=SLSTM(embed_dim=8, num_heads=2, kernel_size=4 if conv else 0),
        params=_SLSTM | (_CONV if conv else {}),
        states=_SLSTM_STATES | ({"past": ("conv", past)} if conv else {}),
    )


def _conv(*, mixing: bool) -> Oracle:
    return Oracle(
        spec=CausalConv1d(channels=8, mixing=mixing),
        params={"weight": ("conv.weight", same), "bias": ("conv.bias", same)},
        states={"past": ("conv", past)},
    )


_MLSTM = {
    **{f"{g}.{of}": (f"{g}gate.{of}", same) for g in "if" for of in ("weight", "bias")},
    "norm.weight": ("outnorm.weight", same),
    **_CONV,
}


def _mlstm(chunk_size: int) -> Oracle:
    return Oracle(
        spec=MLSTM(embed_dim=8, num_heads=2, chunk_size=chunk_size),
        params=_MLSTM,
        states={
            "C": ("c", same),
            "n": ("n", lambda n: n[..., 0]),
            "m": ("m", lambda m: m[..., 0, 0]),
            "past": ("conv", past),
        },
    )


def agalite(eta: int, r: int = 2, *, width: int = 8, unlike: frozenset[str] = frozenset()) -> Oracle:
    """Also for the case inside of a scaffold."""
    spec = AGaLiTe(embed_dim=width, num_heads=2, eta=eta, r=r)
    return Oracle(
        spec=spec,
        unlike=unlike,
        params={
            "kqvbg.weight": ("kqvbg_proj.weight", same),
            "p.weight": ("p123_proj.weight", same),
            "out.weight": ("out_proj.weight", same),
            "out.bias": ("out_proj.bias", same),
        },
        states={
            **{name: (name, same) for name in ("tilde_k", "tilde_v", "s")},
            "tick": ("tick", lambda tick: ((tick - 1) % spec.period)[:, None]),
        },
    )


_AXON = {
    "nu": ("nu_log", same),
    "theta": ("theta_log", same),
    "w1": ("w1", same),
    "w2": ("w2", same),
    "out.weight": ("out_proj.weight", same),
    "out.bias": ("out_proj.bias", same),
}


def axon(activation: Activation, mix: Mix, *, width: int = 8, traces: bool = False) -> Oracle:
    """Also for the cases with traces, which have a test of their own."""
    return Oracle(
        spec=Axon(in_features=width, out_features=width, activation=activation, mix=mix, traces=traces),
        params=_AXON | ({"input.weight": ("input_proj.weight", same)} if mix == "linear" else {}),
        states={"c1": ("hc1", same), "c2": ("hc2", same)},
    )


def _xl(memory: int) -> Oracle:
    products = {f"{n}.{of}": (f"{n}_proj.{of}", same) for n in "qkvo" for of in ("weight", "bias")}
    own = {"r.weight": ("r_proj.weight", same), "content_bias": ("u", same), "position_bias": ("v", same)}
    return Remembered(spec=XLAttention(embed_dim=8, num_heads=2, memory=memory), params=products | own, states={})


def _below(prefix: str, of: str) -> dict[str, tuple[str, Change]]:
    """A map that remembers."""
    own = {f"{prefix}/{name}": (f"{of}.linear.{name}", same) for name in ("weight", "bias")}
    beside = _AXON | {"input.weight": ("input_proj.weight", same)}
    return own | {f"{prefix}/axon/{ours}": (f"{of}.cell.{name}", change) for ours, (name, change) in beside.items()}


def _projected(cell: str) -> Oracle:
    """Cells whose maps remember; states begin as zeros."""
    if cell == "slstm":
        own = {ours: told for ours, told in _SLSTM.items() if ours not in _GATES}
        maps = _below("if", "if_fused") | _below("zo", "zo_fused")
        return Oracle(spec=SLSTM(embed_dim=6, num_heads=2, projection="axon"), params=own | _CONV | maps, states={})
    own = {ours: told for ours, told in _MLSTM.items() if not ours.startswith(("i.", "f."))}
    maps = [_below(*names) for names in (("i", "igate"), ("f", "fgate"), ("qk", "qk_layer"), ("v", "v_layer"))]
    spec = MLSTM(embed_dim=6, num_heads=2, chunk_size=3, projection="axon")
    return Oracle(spec=spec, params={k: v for of in (own, *maps) for k, v in of.items()}, states={})


ORACLES: dict[str, Oracle] = {
    **{f"{cell}_projected_{rest}": _projected(cell) for cell in ("slstm", "mlstm") for rest in ("none", "random")},
    **{f"conv_depthwise_{resets}": _conv(mixing=False) for resets in ("none", "random")},
    **{f"conv_mixing_{resets}": _conv(mixing=True) for resets in ("none", "random")},
    **{f"slstm_{resets}": _slstm(conv=True) for resets in ("none", "random")},
    **{f"slstm_noconv_{resets}": _slstm(conv=False) for resets in ("none", "random")},
    **{f"mlstm_{rest}": _mlstm(64) for rest in ("none", "random", "reset_inside_chunk", "every", "large", "zeros")},
    **{f"mlstm_chunked_{resets}": _mlstm(3) for resets in ("none", "random")},
    **{f"axon_identity_{resets}": axon("linear", "linear") for resets in ("none", "random")},
    **{f"axon_silu_{resets}": axon("silu", "linear") for resets in ("none", "random")},
    "axon_untraced_off": axon("linear", "none"),
    "xl_long_memory": _xl(16),
    "xl_resets": _xl(6),
    "xl_short_memory": _xl(4),
    "agalite_none": agalite(3),
    # A reset restarts the number of the row here, and there it does not: both signs may turn, which y does not show.
    "agalite_random": agalite(3, unlike=frozenset({"tilde_k", "tilde_v", "tick"})),
    "agalite_r4": agalite(2, r=4),
    **{f"slstm_{inputs}": _slstm(conv=False) for inputs in ("every", "large", "zeros")},
}
"""Case → where it is."""
