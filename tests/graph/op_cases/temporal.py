"""Rotations, recurrences, scans and attention."""

from __future__ import annotations

import numpy as np

from tests.graph.op_cases.case import RNG, OpCase, case_outputs, ids, normal
from tests.graph.scans import SCANS, ScanCase
from tests.graph.scans import emit as emit_scan
from volumetric.base._typing import Array
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.operations.edge_attention import edges_of


def _rope(back: bool, b: int, t: int, h: int, d: int, half: int) -> OpCase:
    angles = np.arange(t)[:, None] * 0.7 ** np.arange(half)
    tables = (np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
    return OpCase(op="rope", inputs=(normal(b, t, h, d), *tables), attrs={"back": back})


def _recurrent(cell: str, b: int, t: int, size: int, *, bias: bool, resets: bool = False) -> dict[str, OpCase]:
    draw = np.random.default_rng((len(cell), b, t, size))  # of its own: relu's kink must not lie within a difference

    def normal(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape).astype(np.float32)

    blocks, count = CELLS[cell].blocks, len(CELLS[cell].states)
    states = [normal(b, size) for _ in range(count)]
    heads = 1
    if cell == "slstm":
        heads = {33: 3, 64: 4}.get(size, 1)
        states[2] = np.abs(states[2]) + np.float32(0.1)  # a normaliser; at 0 its gradient jumps
    from_x, weight = normal(b, t, blocks * size), normal(blocks * size, size // heads) * np.float32(0.5)
    end = (normal(blocks * size),) if bias else ()
    keep: tuple[Array, ...] = ()
    if resets:
        keep = ((normal(b, t) > -0.5).astype(np.float32),)
        keep[0][:1, 0] = 0
        states[0][:1] = np.nan  # which is forgotten
    attrs = {"cell": cell, "resets": resets}
    case = OpCase(op="recurrent", inputs=(from_x, weight, *states, *end, *keep), attrs={**attrs, "bias": bias})
    y, *more = case_outputs(case)
    g_last = tuple(normal(b, size) for _ in range(count - 1)) if resets else ()
    given = (normal(b, t, size), *g_last, y, *more[len(states) - 1 :], weight, *states, *keep)
    back = OpCase(op="recurrent_grad", inputs=given, attrs={**attrs, "last": bool(g_last)})
    name = f"{cell}-{b}-{t}-{size}{'-resets' if resets else ''}"
    return {name: case, f"grad-{name}": back}


def _cell(cell: str, rows: int, sets: int, size: int) -> dict[str, OpCase]:
    draw = np.random.default_rng((len(cell), rows, size))

    def normal(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape).astype(np.float32)

    of, wide = CELLS[cell], CELLS[cell].blocks * size
    before = [normal(len(of.direct), rows, size)] if of.direct else []
    if cell == "slstm":
        before[0][1] = np.abs(before[0][1]) + np.float32(0.1)
        before[0][1:, : rows // 2] = 0  # a stream that begins
    attrs = {"cell": cell}
    inputs = (normal(rows, wide), normal(rows, wide), normal(sets, wide), *before)
    case = OpCase(op="cell", inputs=inputs, attrs=attrs)
    y, *more = case_outputs(case)
    several = len(of.states) > 1
    g = [normal(*x.shape) for x in (y, *more[:several])]
    back = OpCase(op="cell_grad", inputs=(*g, y, *more[:several], *more[several:], *before), attrs=attrs)
    return {f"cell-{cell}-{rows}-{size}": case, f"grad-cell-{cell}-{rows}-{size}": back}


def _linear_scan(
    b: int, t: int, width: int, *, reverse: bool = False, keep: bool = False, whole: bool = True
) -> OpCase:
    u, a = normal(b, t, width), (0.3 + RNG.random((b, t, width) if whole else (width,))).astype(np.float32)
    start = () if reverse else (normal(b, width),)
    kept = ((RNG.random((b, t)) < 0.7).astype(np.float32),) if keep else ()
    return OpCase(op="linear_scan", inputs=(u, a, *start, *kept), attrs={"reverse": reverse, "keep": keep})


def _rotate_scan(b: int, t: int, width: int, *, reverse: bool = False, keep: bool = False) -> OpCase:
    start = () if reverse else (normal(b, 2 * width),)
    kept = ((RNG.random((b, t)) < 0.7).astype(np.float32),) if keep else ()
    inputs = (normal(b, t, 2 * width), 0.5 * normal(width), 0.5 * normal(width), *start, *kept)
    return OpCase(op="rotate_scan", inputs=inputs, attrs={"reverse": reverse, "keep": keep})


def _depthwise(b: int, t: int, width: int, taps: int, *, bias: bool = True, resets: bool = False) -> dict[str, OpCase]:
    x, weight, past = normal(b, t, width), normal(width, 1, taps), normal(b, taps - 1, width)
    end = (normal(width),) if bias else ()
    keep: tuple[Array, ...] = ()
    if resets:
        keep = ((RNG.random((b, t)) < 0.6).astype(np.float32),)
        keep[0][:1, :1] = 0
        past[:1] = np.nan  # nobody sees it
    attrs = {"resets": resets}
    case = OpCase(op="depthwise_conv", inputs=(x, weight, past, *end, *keep), attrs={**attrs, "bias": bias})
    back = OpCase(op="depthwise_conv_grad", inputs=(normal(b, t, width), x, weight, past, *keep), attrs=attrs)
    name = f"depthwise-{b}-{t}-{width}-{taps}{'-resets' if resets else ''}"
    return {name: case, f"grad-{name}": back}


def _distances(b: int, t: int, memory: int, heads: int, width: int, *, resets: bool = False) -> OpCase:
    read = [normal(b, t, heads * width) for _ in range(4)]
    held = [normal(b, memory, heads * width) for _ in range(2)]
    age = (np.arange(b, dtype=np.float32) * 3 % (memory + 1))[:, None]
    for row in range(b):  # nobody sees what was before the sequence
        held[0][row, : memory - int(age[row, 0])] = held[1][row, : memory - int(age[row, 0])] = np.nan
    keep = ((RNG.random((b, t)) < 0.7).astype(np.float32),) if resets else ()
    inputs = (*read, normal(heads, memory + 1, width), *held, age, *keep)
    return OpCase(op="distance_attend", inputs=inputs, attrs={"heads": heads, "resets": resets})


def crossed(e: int, p: int, n: int, m: int, heads: int, width: int, *, masked: bool = False, known: int = 0) -> OpCase:
    """Parts that ask from rows one behind the other, the same ones again, and any; with a mask one sees nothing.

    With so many keys and values `known` no rows are mapped to them.
    """
    rows, d = n + 3, heads * width
    asks, tells = (ids(e * p * count, rows).reshape(e, p, count) for count in (n, m))
    asks[:1] = np.arange(n)
    weights = [normal(e, d, d) / np.float32(d**0.5) for _ in range(4)]
    seen = [(RNG.random((m, n)) < 0.6).astype(np.float32)] if masked else []
    for mask in seen:
        mask[:, -1] = 0
    biases, tables = [normal(e, d) for _ in range(4)], []
    table = normal(rows, d)
    if known:
        weights, biases, tables = weights[::3], biases[::3], [normal(known, d) for _ in range(2)]
        tells = ids(tells.size, known).reshape(tells.shape)
        tells[-1:] = np.arange(m)  # one behind the other
    inputs = (table, asks, tells, *weights, *biases, *tables, *seen)
    return OpCase(op="cross_attend", inputs=inputs, attrs={"heads": heads, "masked": masked, "known": bool(known)})


def _weighed(n: int, terms: int, near: int, far: int, width: int) -> OpCase:
    """Nothing of rows that have no weight."""
    numbers, weights = ids(n * terms, near + far - 1).reshape(n, terms), normal(n, terms)
    weights[RNG.random((n, terms)) < 0.4] = 0
    tables = normal(near, width), normal(far, width)
    tables[1][-1:] = np.nan
    numbers[weights == 0] = near + far - 1
    return OpCase(op="weigh_rows", inputs=(*tables, numbers, weights))


def _edges(r: int, s: int, b: int, heads: int, key: int, value: int, **how: int) -> dict[str, OpCase]:
    """Receivers with 0 to 2 s edges; `queries` and `biases` of one stream and head, `masked` edges at -inf."""
    counts: Array = RNG.integers(0, 2 * s, r) if s else np.zeros(r, np.int64)
    counts[:1] = 0
    lists = edges_of(np.append(0, np.cumsum(counts)), RNG.integers(0, max(s, 1), counts.sum()), s)
    bias = normal(len(lists.senders), heads if how.get("biases", 0) else 1)
    if how.get("masked"):
        bias[::3] = -np.inf
        bias[lists.starts[1] : lists.starts[min(2, r)]] = -np.inf
    attrs = {
        "heads": heads,
        "most_in": int(counts.max(initial=0)),
        "most_out": int(np.diff(lists.out_starts).max(initial=0)),
    }
    q, kv = normal(r, b if how.get("queries") else 1, heads * key), normal(s, b, heads * (key + value))
    case = OpCase(op="edge_attend", inputs=(q, kv, bias, *lists), attrs=attrs)
    _, weights = case_outputs(case)
    back = OpCase(op="edge_attend_grad", inputs=(normal(r, b, heads * value), weights, q, kv, *lists), attrs=attrs)
    name = f"edges-{r}-{s}-{b}-{heads}"
    return {name: case, f"grad-{name}": back}


def _scan(case: ScanCase) -> OpCase:
    work, _, _ = emit_scan(case)
    return OpCase(op="scan", inputs=tuple(case.arrays), attrs=work.nodes[-1].attrs)


SEQUENCES_CASES = {
    "rope": _rope(False, 2, 5, 3, 8, 4),
    "rope-back": _rope(True, 2, 5, 3, 8, 4),
    "rope-part": _rope(False, 1, 17, 1, 7, 2),
    "rope-none": _rope(False, 0, 3, 2, 4, 2),
    **_depthwise(2, 7, 33, 4),
    **_depthwise(3, 9, 16, 4, resets=True),
    **_depthwise(1, 1, 5, 3, bias=False),
    **_depthwise(2, 2, 144, 4, bias=False, resets=True),
    **_depthwise(1, 11, 17, 2, resets=True),
    **_depthwise(2, 0, 3, 4),
    "distances": _distances(3, 4, 5, 2, 3),
    "distances-resets": _distances(5, 7, 6, 1, 17, resets=True),
    "distances-one": _distances(2, 1, 37, 3, 16),
    "distances-more-than-held": _distances(2, 8, 1, 2, 2, resets=True),
    "crossed": crossed(2, 3, 5, 7, 2, 3),
    "crossed-one": crossed(1, 1, 1, 1, 1, 1),
    "crossed-masked": crossed(2, 2, 19, 3, 3, 16, masked=True),
    "crossed-many": crossed(1, 3, 67, 33, 4, 16),
    "crossed-wide": crossed(2, 1, 9, 21, 1, 64, masked=True),
    "weighed": _weighed(5, 3, 4, 2, 17),
    "weighed-one": _weighed(1, 1, 1, 1, 1),
    "weighed-many": _weighed(37, 5, 9, 3, 64),
    "linear-scan": _linear_scan(2, 5, 17),
    "linear-scan-one": _linear_scan(1, 1, 1, keep=True),
    "linear-scan-keep": _linear_scan(3, 7, 5, keep=True),
    "linear-scan-vector": _linear_scan(2, 4, 33, keep=True, whole=False),
    "linear-scan-back": _linear_scan(2, 5, 19, reverse=True),
    "linear-scan-back-keep": _linear_scan(3, 6, 3, reverse=True, keep=True),
    "linear-scan-back-vector": _linear_scan(2, 3, 16, reverse=True, keep=True, whole=False),
    "linear-scan-no-steps": _linear_scan(2, 0, 3),
    **_edges(5, 4, 2, 2, 3, 2),
    **_edges(7, 5, 17, 1, 17, 33, queries=1),
    **_edges(3, 6, 1, 3, 4, 5, biases=1, masked=1),
    **_edges(2, 1, 3, 1, 1, 1, queries=1),
    **_edges(3, 0, 2, 1, 2, 2),
    **_edges(0, 3, 2, 1, 2, 2),
    "rotate-scan": _rotate_scan(2, 5, 17),
    "rotate-scan-one": _rotate_scan(1, 1, 1, keep=True),
    "rotate-scan-keep": _rotate_scan(3, 7, 5, keep=True),
    "rotate-scan-back": _rotate_scan(2, 5, 19, reverse=True),
    "rotate-scan-back-keep": _rotate_scan(3, 6, 3, reverse=True, keep=True),
    "rotate-scan-no-steps": _rotate_scan(2, 0, 3),
    **{
        name: case
        for cell in CELLS
        for shape in ((6, 3, 5), (5, 1, 33), (0, 0, 3))
        for name, case in _cell(cell, *shape).items()
    },
    "linear-scan-no-rows": _linear_scan(0, 3, 2, reverse=True),
    **{
        name: case
        for cell in CELLS
        for shape, bias, resets in (
            ((2, 5, 3), True, False),
            ((17, 3, 33), False, False),
            ((1, 1, 1), True, False),
            ((0, 2, 3), True, False),
            ((5, 6, 7), True, True),
            ((18, 2, 33), False, True),
            *([((6, 4, 64), True, True)] if cell == "slstm" else []),
        )
        for name, case in _recurrent(cell, *shape, bias=bias, resets=resets).items()
    },
}

SCANS_CASES = {f"scan-{name}": _scan(case) for name, case in SCANS.items()}
