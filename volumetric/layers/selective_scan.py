"""The selective scan of state-space layers, as one fused row operation or decomposed for whole sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from volumetric.graph.operations.linear_scan import linear_scan
from volumetric.graph.state_spec import StateSpec
from volumetric.layers.emit_scope import Scope, as_rows, columns, start_state

STATE = "state"
"""Name of the state of a scan."""


def scan_state(size: int, channels: int) -> StateSpec:
    """Return the state of a scan, for all elements of all channels."""
    return StateSpec(name=STATE, shape=(size, channels), kind="fixed")


class ColumnRange(NamedTuple):
    """Columns of a value from `start_state`."""

    of: int
    start: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveScanEmitter:
    """A selective scan with its inputs as columns of values; see `volumetric.graph.operations.state_space`.

    Attributes
    ----------
    heads, head_dim, groups, size : of the scan
    x, dt, b, c : inputs, dt before the softplus
    z : gate of the output; None: no gate
    a_log, d, dt_bias : parameters
    dt_factor, z_factor : factors on the inputs dt and z
    dt_min, dt_max : bounds of dt
    """

    heads: int
    head_dim: int = 1
    groups: int = 1
    size: int
    x: ColumnRange
    dt: ColumnRange
    b: ColumnRange
    c: ColumnRange
    z: ColumnRange | None
    a_log: int
    d: int
    dt_bias: int | None = None
    dt_factor: float = 1.0
    z_factor: float = 1.0
    dt_min: float = 0.0
    dt_max: float | None = None

    def emit(self, scope: Scope) -> int:
        """Emit the scan of rows, ``[…, heads · head_dim]``."""
        work = scope.work
        read = {"x": self.x, "dt": self.dt, "b": self.b, "c": self.c, "z": self.z}
        parts = {name: part for name, part in read.items() if part is not None}
        params = {"a_log": self.a_log, "d": self.d, "dt_bias": self.dt_bias}
        stored = {name: i for name, i in params.items() if i is not None}
        values = tuple(part.of for part in parts.values())
        if not (scope.keeps_state(self.x.of) and work.is_native("selective_scan", (*values, *stored.values()))):
            return self._written_out(scope)
        by_role = {name: part.of for name, part in parts.items()} | stored
        by_role["state"] = scope.state(STATE, (self.size, self.heads * self.head_dim))
        return work.emit(
            "selective_scan",
            tuple(by_role.values()),
            roles=tuple(by_role),
            heads=self.heads,
            head_dim=self.head_dim,
            groups=self.groups,
            size=self.size,
            starts={name: part.start for name, part in parts.items()},
            dt_factor=self.dt_factor,
            z_factor=self.z_factor,
            dt_min=self.dt_min,
            dt_max=self.dt_max,
        )[0]

    def _written_out(self, scope: Scope) -> int:
        """Emit the decomposition: small operations around a `linear_scan` over all elements of the states."""
        work, heads, width, size = scope.work, self.heads, self.head_dim, self.size
        every = heads * width * size
        batch, length, _ = work.shape(scope.as_sequences(self.x.of))
        rows = batch * length
        x = work.reshape(self._rows(scope, self.x, heads * width), (rows, heads, width))
        dt = work.reshape(self._steps(scope), (rows, 1, heads))
        rate = work.unary(work.unary(self.a_log, "exp"), "neg")
        if len(work.shape(rate)) == 2:
            rate = work.permute(rate, (1, 0))
        else:
            rate = work.reshape(rate, (1, heads))
        decay = work.unary(work.binary("mul", dt, rate), "exp")
        decay = work.reshape(decay, (*work.shape(decay), 1))
        decay = work.reshape(work.broadcast(decay, (rows, size, heads, width)), (batch, length, every))
        scaled = work.binary("mul", x, work.reshape(dt, (rows, heads, 1)))
        u = work.binary("mul", self._by_head(scope, self.b), work.reshape(scaled, (rows, 1, heads, width)))
        shape, keep = (size, heads * width), scope.keep_mask(self.x.of)
        begun = work.reshape(start_state(scope, self.x.of, STATE, shape), (batch, every))
        states = linear_scan(work, work.reshape(u, (batch, length, every)), decay, begun, keep)
        if scope.keeps_state(self.x.of):
            scope.keep_state(STATE, work.reshape(work.last(states, 1), (batch, *shape)))
        met = work.binary("mul", work.reshape(states, (rows, size, heads, width)), self._by_head(scope, self.c))
        y = work.reshape(work.reduce(met, "sum", (1,)), (rows, heads, width))
        y = work.binary("add", y, work.binary("mul", x, work.reshape(self.d, (heads, 1))))
        y = work.reshape(y, (*work.shape(self.x.of)[:-1], heads * width))
        if self.z is None:
            return y
        gate = work.affine(columns(work, *self.z, heads * width), self.z_factor)
        return work.binary("mul", y, work.unary(gate, "silu"))

    def _steps(self, scope: Scope) -> int:
        """Emit dt, ``[rows, heads]``."""
        work = scope.work
        dt = work.affine(self._rows(scope, self.dt, self.heads), self.dt_factor)
        if self.dt_bias is not None:
            dt = work.binary("add", dt, self.dt_bias)
        dt = work.unary(dt, "softplus")
        if self.dt_min > 0:
            dt = work.binary("max", dt, work.scalar(self.dt_min))
        return dt if self.dt_max is None else work.binary("min", dt, work.scalar(self.dt_max))

    def _by_head(self, scope: Scope, part: ColumnRange) -> int:
        """Emit b or c of each head, ``[rows, size, heads, 1]``."""
        work, groups = scope.work, self.groups
        grouped = self._rows(scope, part, groups * self.size)
        rows = work.shape(grouped)[0]
        turned = work.permute(work.reshape(grouped, (rows, groups, self.size)), (0, 2, 1))
        turned = work.reshape(turned, (rows, self.size, groups, 1))
        spread = work.broadcast(turned, (rows, self.size, groups, self.heads // groups))
        return work.reshape(spread, (rows, self.size, self.heads, 1))

    def _rows(self, scope: Scope, part: ColumnRange, width: int) -> int:
        return as_rows(scope.work, columns(scope.work, *part, width))
