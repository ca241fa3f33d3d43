"""What is measured: every cell and scaffold at one size, and the programs that compute a window of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from volumetric import layers as nn
from volumetric.base import rng
from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.builders.presets import presets_of
from volumetric.builders.sequential import chain
from volumetric.graph import Graph, GraphBuilder, differentiate
from volumetric.layers.emit_scope import GraphTraining, Scope
from volumetric.network import Network

WIDTH: Final = 128
RESETS: Final = 0.01
"""Share of the rows that begin a sequence anew, where any do."""

Role: TypeAlias = Literal["forward", "train"]

CELLS: Mapping[str, nn.LayerSpec] = MappingProxyType(
    {
        "lstm": nn.LSTM(input_size=WIDTH, hidden_size=WIDTH),
        "causal_conv1d": nn.CausalConv1d(channels=WIDTH),
        "slstm": nn.SLSTM(embed_dim=WIDTH),
        "mlstm": nn.MLSTM(embed_dim=WIDTH),
        "xl_attention": nn.XLAttention(embed_dim=WIDTH),
        "agalite": nn.AGaLiTe(embed_dim=WIDTH),
        "axon": nn.Axon(in_features=WIDTH, out_features=WIDTH),
        "axon_linear": nn.AxonLinear(in_features=WIDTH, out_features=WIDTH),
        "pre_up": nn.PreUp(embed_dim=WIDTH, core=nn.CausalConv1d(channels=2 * WIDTH)),
        "pre_up_gated": nn.PreUpGated(embed_dim=WIDTH, core=nn.CausalConv1d(channels=2 * WIDTH)),
        "post_up": nn.PostUp(embed_dim=WIDTH, core=nn.CausalConv1d(channels=WIDTH)),
        "post_up_gated": nn.PostUpGated(embed_dim=WIDTH, core=nn.CausalConv1d(channels=WIDTH)),
        "adapter": nn.Adapter(embed_dim=WIDTH, core=nn.CausalConv1d(channels=WIDTH)),
        "column": nn.Column(embed_dim=WIDTH, experts=tuple(preset.at(WIDTH) for preset in presets_of("AXMS"))),
    }
)
"""Kind → the cell with the fields of its preset; scaffolds are around a causal convolution, which takes little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCase:
    """Windows of one cell: ``[batch, rows, 128]``."""

    kind: str
    batch: int = 8
    rows: int = 256

    @property
    def spec(self) -> nn.LayerSpec:
        """The cell."""
        return CELLS[self.kind]

    @property
    def network(self) -> Network:
        """It alone."""
        return chain([self.spec], (WIDTH,))

    def resets(self) -> Array:
        """Return where sequences begin anew, float32 ``[batch, rows]``."""
        return (rng.generator(7).random((self.batch, self.rows)) < RESETS).astype(np.float32)

    def arrays(self, params: Mapping[str, Any]) -> dict[str, Array]:
        """Return the parameters as ``p/…``, ``x`` and ``gy``."""
        draw = rng.generator(3)
        shape = (self.batch, self.rows, WIDTH)
        own = {f"p/{p.name}": params[f"0.0.0.0/{p.name}"].values() for p in self.spec.params()}
        return own | {name: draw.standard_normal(shape, np.float32) for name in ("x", "gy")}

    def graph(self, role: Role, *, resets: bool) -> Graph:
        """Return the graph of a window over ``p/…``, ``x``, ``gy`` and ``resets``; hardly anything comes back."""
        work, count = GraphBuilder(), self.batch * self.rows
        x = work.reshape(work.stored_tensor("x", (self.batch, self.rows, WIDTH)), (count, WIDTH))
        weights = {p.name: work.stored_tensor(f"p/{p.name}", p.shape) for p in self.spec.params()}
        scope = Scope(
            work=work,
            param=lambda path, _: weights[path],
            path=self.kind,
            sequences=self.batch,
            training=GraphTraining(buffers={}) if role == "train" else None,
            resets=work.stored_tensor("resets", (self.batch, self.rows)) if resets else None,
        )
        y = scope.emit(self.spec, x)
        outputs = [y]
        if role == "train":
            gy = work.reshape(work.stored_tensor("gy", (self.batch, self.rows, WIDTH)), (count, WIDTH))
            outputs += differentiate(work, {y: gy}, [*weights.values(), x]).values()
        return work.finish([_first(work, i) for i in outputs])


def chosen(names: Sequence[str] | None) -> list[CellCase]:
    """Return the cells that are named, or all.

    Raises
    ------
    SpecError : there is no such cell
    """
    unknown = [name for name in names or () if name not in CELLS]
    if unknown:
        raise SpecError(f"no cell is called {unknown[0]!r}", hint="one of " + ", ".join(CELLS))
    return [CellCase(kind=name) for name in names or CELLS]


def _first(work: GraphBuilder, x: int) -> int:
    shape = work.shape(x)
    return work.slice(x, (0,) * len(shape), (1,) * len(shape))
