"""Steps of attention: angles, writing to the caches, and attention over the caches."""

from __future__ import annotations

import math
from typing import Any

from volumetric.devices.cpu.kernels.attention import ATTEND_ARGUMENTS, heads_together
from volumetric.devices.cpu.kernels.panel_microkernels import float_tile_shape
from volumetric.devices.cpu.kernels.rope_kv_append import ANGLE_ARGUMENTS, APPEND_ARGUMENTS
from volumetric.devices.cpu.rows.elements import NORMS
from volumetric.devices.cpu.rows.row_step_builder import RowStepBuilder, rule
from volumetric.graph.numeric.rope import Rope, inverse_frequencies
from volumetric.graph.ops import Node


def angles(builder: RowStepBuilder) -> None:
    """Append the rotary angles of each kind in use."""
    ropes = [node.attrs["rope"] for node in builder.settings.cut.rows if node.op == "attend"]
    for rope in dict.fromkeys(rope for rope in ropes if rope is not None):
        builder.angles[rope] = out = builder.temporary(4 * rope.dim)
        keep = builder.settings.weights.small_array
        builder.add(
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
def attend(builder: RowStepBuilder, node: Node) -> None:
    """Write new keys and values to the caches, then attend, for each sequence."""
    attrs, settings = node.attrs, builder.settings
    pair = settings.pair_of(node)
    source, target = node.inputs[0], node.outputs[0]
    cache, queries = builder.cache(pair), builder.temporary(4 * attrs["heads"] * attrs["head_dim"])
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
        "held": int(bool(builder.graph.states(node))),
    }
    append = builder.step(
        "append", APPEND_ARGUMENTS, settings.storage, int(rounds), **shared, **_append_arguments(builder, node)
    )
    turned = (builder.angles[rope],) if rope else ()
    is_few = builder.mode[0] == "few"
    builder.add_each_sequence(append, None if is_few else append, reads=(source, *turned), writes=(queries, cache))
    shared |= {
        "output": target,
        "causal": int(attrs["causal"]),
        "window": int(attrs["window"] or 0),
        "chunk": int(attrs["chunk"] or 0),
        "softcap": float(attrs["softcap"] or 0.0),
        "sinks": settings.weights.vector(builder.graph.keys_by_role(node).get("sinks")),
    }
    rows, wide = float_tile_shape()
    together = heads_together(attrs["heads"], attrs["kv_heads"], rows)
    builder.want_scratch(_attention_scratch(rows, attrs["head_dim"], settings.context))
    few = builder.step("attend_few", ATTEND_ARGUMENTS, settings.storage, int(rounds), together, wide, **shared)
    many = None
    if rounds and not is_few:
        opened = builder.step("open_cache", ATTEND_ARGUMENTS, settings.storage, **shared)
        builder.add_each_sequence(None, opened, reads=(cache,), writes=(builder.opened,))
        many = builder.step("attend_rounded", ATTEND_ARGUMENTS, rows, wide, **shared)
    elif not is_few:
        many = builder.step("attend", ATTEND_ARGUMENTS, settings.storage, rows, wide, **shared)
    builder.add_each_sequence(few, many, reads=(queries, cache, builder.opened), writes=(target,))


def _append_arguments(builder: RowStepBuilder, node: Node) -> dict[str, Any]:
    """Arguments of the step that prepares queries and fills the caches."""
    attrs, params, vector = node.attrs, builder.graph.keys_by_role(node), builder.settings.weights.vector
    rope: Rope | None = attrs["rope"]
    unit_offset = bool(attrs["qk_norm_unit_offset"])
    return {
        "input": node.inputs[0],
        "q_norm": vector(params.get("q_norm"), unit_offset=unit_offset),
        "k_norm": vector(params.get("k_norm"), unit_offset=unit_offset),
        "eps": float(attrs["qk_norm_eps"]),
        "half": rope.dim // 2 if rope else 0,
        "table": builder.angles[rope] if rope else 0,
        "scale": float(attrs["scale"]),
        "norm": NORMS[attrs["qk_norm"]],
        "temperature_scale": float(attrs["temperature_scale"]),
        "temperature_every": int(attrs["temperature_every"]),
        "gain_stride": 4 * attrs["head_dim"] if attrs["own_gains"] else 0,
    }


def _attention_scratch(rows: int, head_dim: int, context: int) -> int:
    """Bytes for the sums, weighted values, rounded queries and scores of one tile of rows."""
    return 64 + rows * (2 * 16 * math.ceil(head_dim / 16) + context + 32) * 4
