"""Steps of attention: angles, writing to the caches, and attention over the caches."""

from __future__ import annotations

import math
from typing import Any

from volumetric.devices.cpu.kernels.append import ANGLE_ARGUMENTS, APPEND_ARGUMENTS
from volumetric.devices.cpu.kernels.attention import ATTEND_ARGUMENTS, heads_together
from volumetric.devices.cpu.kernels.tiles import float_tile_shape
from volumetric.devices.cpu.rows.draft import RowDraft, rule
from volumetric.devices.cpu.rows.elements import NORMS
from volumetric.graph.numeric.rope import Rope, inverse_frequencies
from volumetric.graph.ops import Node


def angles(draft: RowDraft) -> None:
    """Append the rotary angles of each kind in use."""
    ropes = [node.attrs["rope"] for node in draft.settings.cut.rows if node.op == "attend"]
    for rope in dict.fromkeys(rope for rope in ropes if rope is not None):
        draft.angles[rope] = out = draft.temporary(4 * rope.dim)
        keep = draft.settings.weights.keep
        draft.add(
            "angles",
            ANGLE_ARGUMENTS,
            reads=(),
            writes=(out,),
            frequencies=keep(("angles", rope), lambda rope=rope: inverse_frequencies(rope)),
            half=rope.dim // 2,
            out=out,
            factor=rope.attention_factor,
        )


@rule("attend")
def attend(draft: RowDraft, node: Node) -> None:
    """Write new keys and values to the caches, then attend, for each sequence."""
    attrs, settings = node.attrs, draft.settings
    pair = settings.pair_of(node)
    source, target = node.inputs[0], node.outputs[0]
    cache, queries = draft.cache(pair), draft.temporary(4 * attrs["heads"] * attrs["head_dim"])
    rope: Rope | None = attrs["rope"]
    rounds = settings.opened_bytes > 0 and settings.storage != "int8"
    shared: dict[str, Any] = {
        "reads": (),
        "writes": (),
        "heads": attrs["heads"],
        "kv_heads": attrs["kv_heads"],
        "head_dim": attrs["head_dim"],
        "state": settings.pairs.index(pair),
        "queries": queries,
        "held": int(bool(draft.graph.states(node))),
    }
    append = draft.step("append", APPEND_ARGUMENTS, settings.storage, int(rounds), **shared, **_appended(draft, node))
    turned = (draft.angles[rope],) if rope else ()
    is_few = draft.mode[0] == "few"
    draft.each_piece(append, None if is_few else append, reads=(source, *turned), writes=(queries, cache))
    shared |= {
        "output": target,
        "causal": int(attrs["causal"]),
        "window": int(attrs["window"] or 0),
        "chunk": int(attrs["chunk"] or 0),
        "softcap": float(attrs["softcap"] or 0.0),
        "sinks": settings.weights.vector(draft.graph.keys(node).get("sinks")),
    }
    rows, wide = float_tile_shape()
    together = heads_together(attrs["heads"], attrs["kv_heads"], rows)
    draft.want_scratch(_attention_scratch(rows, attrs["head_dim"], settings.context))
    few = draft.step("attend_few", ATTEND_ARGUMENTS, settings.storage, int(rounds), together, wide, **shared)
    many = None
    if rounds and not is_few:
        opened = draft.step("open_cache", ATTEND_ARGUMENTS, settings.storage, **shared)
        draft.each_piece(None, opened, reads=(cache,), writes=(draft.opened,))
        many = draft.step("attend_rounded", ATTEND_ARGUMENTS, rows, wide, **shared)
    elif not is_few:
        many = draft.step("attend", ATTEND_ARGUMENTS, settings.storage, rows, wide, **shared)
    draft.each_piece(few, many, reads=(queries, cache, draft.opened), writes=(target,))


def _appended(draft: RowDraft, node: Node) -> dict[str, Any]:
    """Arguments of the step that prepares queries and fills the caches."""
    attrs, params, vector = node.attrs, draft.graph.keys(node), draft.settings.weights.vector
    rope: Rope | None = attrs["rope"]
    unit_offset = bool(attrs["qk_norm_unit_offset"])
    return {
        "input": node.inputs[0],
        "q_norm": vector(params.get("q_norm"), unit_offset=unit_offset),
        "k_norm": vector(params.get("k_norm"), unit_offset=unit_offset),
        "eps": float(attrs["qk_norm_eps"]),
        "half": rope.dim // 2 if rope else 0,
        "table": draft.angles[rope] if rope else 0,
        "scale": float(attrs["scale"]),
        "norm": NORMS[attrs["qk_norm"]],
        "temperature_scale": float(attrs["temperature_scale"]),
        "temperature_every": int(attrs["temperature_every"]),
        "gain_stride": 4 * attrs["head_dim"] if attrs["own_gains"] else 0,
    }


def _attention_scratch(rows: int, head_dim: int, context: int) -> int:
    """Bytes for the sums, weighted values, rounded queries and scores of one tile of rows."""
    return 64 + rows * (2 * 16 * math.ceil(head_dim / 16) + context + 32) * 4
