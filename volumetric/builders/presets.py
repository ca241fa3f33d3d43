"""Presets of stack layers: a core in a suitable scaffold, for any width."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from volumetric import layers
from volumetric.base.errors import SpecError
from volumetric.graph.numeric.activations import Activation
from volumetric.layers import LayerSpec, PassThrough, PostUpGated, PreUpGated


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A layer of a stack, before its width is known."""

    token: ClassVar[str]
    """Its name in a pattern."""

    def at(self, width: int) -> LayerSpec:
        """Return the layer, which reads and returns rows of this width."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Axon(Preset):
    """`layers.Axon` in a `PostUpGated`: streams of any length at the cost of a vector. Token ``A``."""

    token: ClassVar[str] = "A"

    activation: Activation = "linear"
    traces: bool = False
    factor: float = 1.5

    def at(self, width: int) -> LayerSpec:
        core = layers.Axon(in_features=width, out_features=width, activation=self.activation, traces=self.traces)
        return PostUpGated(embed_dim=width, factor=self.factor, core=core)


@dataclass(frozen=True, slots=True, kw_only=True)
class XL(Preset):
    """`layers.XLAttention` in a `PostUpGated`: attention over the last rows. Token ``X``."""

    token: ClassVar[str] = "X"

    num_heads: int = 4
    memory: int = 128
    factor: float = 1.5

    def at(self, width: int) -> LayerSpec:
        core = layers.XLAttention(embed_dim=width, num_heads=self.num_heads, memory=self.memory)
        return PostUpGated(embed_dim=width, factor=self.factor, core=core)


@dataclass(frozen=True, slots=True, kw_only=True)
class MLSTM(Preset):
    """`layers.MLSTM` in a `PreUpGated`: a memory of matrices. Token ``M``."""

    token: ClassVar[str] = "M"

    num_heads: int = 4
    kernel_size: int = 4
    chunk_size: int = 64
    factor: float = 2.0

    def at(self, width: int) -> LayerSpec:
        core = layers.MLSTM(
            embed_dim=int(self.factor * width),
            num_heads=self.num_heads,
            kernel_size=self.kernel_size,
            chunk_size=self.chunk_size,
        )
        return PreUpGated(embed_dim=width, factor=self.factor, core=core)


@dataclass(frozen=True, slots=True, kw_only=True)
class SLSTM(Preset):
    """`layers.SLSTM` in a `PostUpGated`: an LSTM with exponential gates. Token ``S``."""

    token: ClassVar[str] = "S"

    num_heads: int = 4
    kernel_size: int = 4
    factor: float = 1.5

    def at(self, width: int) -> LayerSpec:
        core = layers.SLSTM(embed_dim=width, num_heads=self.num_heads, kernel_size=self.kernel_size)
        return PostUpGated(embed_dim=width, factor=self.factor, core=core)


@dataclass(frozen=True, slots=True, kw_only=True)
class AGaLiTe(Preset):
    """`layers.AGaLiTe` in a `PostUpGated`: linear attention with decay. Token ``Ag``."""

    token: ClassVar[str] = "Ag"

    num_heads: int = 8
    eta: int = 6
    r: int = 2
    factor: float = 1.5

    def at(self, width: int) -> LayerSpec:
        core = layers.AGaLiTe(embed_dim=width, num_heads=self.num_heads, eta=self.eta, r=self.r)
        return PostUpGated(embed_dim=width, factor=self.factor, core=core)


@dataclass(frozen=True, slots=True, kw_only=True)
class LSTM(Preset):
    """`layers.LSTM` alone, with orthogonal matrices and biases of 1. Token ``L``."""

    token: ClassVar[str] = "L"

    def at(self, width: int) -> LayerSpec:
        return PassThrough(core=layers.LSTM(input_size=width, hidden_size=width, fresh="orthogonal"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalConv(Preset):
    """`layers.CausalConv1d` alone, depthwise. Token ``C``."""

    token: ClassVar[str] = "C"

    kernel_size: int = 4

    def at(self, width: int) -> LayerSpec:
        return PassThrough(core=layers.CausalConv1d(channels=width, kernel_size=self.kernel_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class AxonProjected(Preset):
    """A preset whose core has a `layers.AxonLinear` in place of each projection. Token: that of `preset`, then ``^``.

    Attributes
    ----------
    preset : the preset that is changed
    """

    preset: Preset

    def at(self, width: int) -> LayerSpec:
        scaffold = self.preset.at(width)
        [core] = scaffold.children().values()
        if not isinstance(core, (layers.MLSTM, layers.SLSTM, layers.XLAttention)):
            raise SpecError(
                f"the pattern has {self.preset.token}^, but the core of this preset has no projections to replace",
                hint="use ^ after M, S or X",
            )
        return dataclasses.replace(scaffold, core=dataclasses.replace(core, projection="axon"))  # pyright: ignore[reportArgumentType]  (scaffolds are dataclasses with a core)


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {preset.token: preset for preset in (Axon(), XL(), MLSTM(), SLSTM(), AGaLiTe(), LSTM(), CausalConv())}
)
"""Token → preset."""


def presets_of(pattern: str) -> list[Preset]:
    """Return the presets that a pattern names, such as ``"AXMS"``, ``"Ag X"`` or ``"M^S"``.

    Raises
    ------
    SpecError : the pattern is empty, or contains anything else
    """
    if not isinstance(pattern, str):
        raise SpecError(f"a pattern must be a string, got {pattern!r}")
    presets: list[Preset] = []
    rest = pattern
    while rest := rest.lstrip():
        token = next((token for token in sorted(PRESETS, key=len, reverse=True) if rest.startswith(token)), None)
        if token is None:
            known = ", ".join(PRESETS)
            raise SpecError(f"pattern {pattern!r}: {rest[0]!r} at index {len(pattern) - len(rest)} is not a preset",
                            hint=f"use one of {known}, or one of these followed by ^")  # fmt: skip
        rest = rest[len(token) :]
        preset = PRESETS[token]
        if rest.startswith("^"):
            preset, rest = AxonProjected(preset=preset), rest[1:]
        presets.append(preset)
    if not presets:
        raise SpecError("a pattern must name at least one preset", hint=f"use one of {', '.join(PRESETS)}")
    return presets
