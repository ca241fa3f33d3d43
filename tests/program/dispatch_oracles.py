"""Dispatch as another package computes it: programs, names and shapes brought to ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.program.attention_oracles import ours
from volumetric._typing import Array
from volumetric.layers.program.canvas import Canvas
from volumetric.layers.program.declared import Program
from volumetric.layers.program.edge import Edge
from volumetric.layers.program.facts import Facts, facts_of
from volumetric.layers.program.names import ALIASES
from volumetric.layers.program.region import Region
from volumetric.layers.program.tasks import gate_of, params_of, tasks_of

FIXTURES = Path(__file__).parent.parent / "fixtures" / "dispatch"
CASES = tuple(sorted(path.stem for path in FIXTURES.glob("*.npz")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A dispatch: what went in, what came out, and gradients of the sum of ``y · cotangent`` if there are some."""

    facts: Facts
    p: dict[str, Array]
    x: Array
    live: Array
    y: Array
    cotangent: Array | None
    grads: dict[str, Array]
    summaries: dict[str, dict[str, float]]


def program_of(of: dict[str, Any]) -> Program:
    """The program of a case; edges read what is ``dst`` there."""
    layout = of["layout"]
    regions: dict[str, Region] = {}
    for name, region in layout["regions"].items():
        ends = region["bounds"]
        box = tuple(zip(ends[::2], ends[1::2], strict=True))
        rule = ALIASES.get(region["default_attn"], region["default_attn"])
        regions[name] = Region(box, carrier=region["carrier"], period=region["period"], rule=rule)
    modes = of.get("modes") or ["add"] * len(of["connections"])
    edges = [
        Edge(
            reads=link["dst"],
            writes=link["src"],
            rule=None if link["fn"] is None else ALIASES.get(link["fn"], link["fn"]),
            write=mode,  # pyright: ignore[reportArgumentType]  (Edge checks it)
            weight=link["weight"],
            lag=None if link["t_src"] is None else link["t_src"] - link["t_dst"],
            fill={"interpolate": "lerp"}.get(link["temporal_fill"], link["temporal_fill"]),  # pyright: ignore[reportArgumentType]  (Edge checks it)
            order=link["interpolation_order"],
        )
        for link, mode in zip(of["connections"], modes, strict=True)
    ]
    canvas = Canvas(frames=layout["T"], shape=tuple(layout["spatial_shape"]), width=layout["d_model"], regions=regions)
    return Program(canvas, edges, heads=of["heads"], share="rule", parity=True, time="window")


def load(case: str) -> Case:
    of = json.loads((FIXTURES / f"{case}.json").read_text())
    facts = facts_of(program_of(of))
    with np.load(FIXTURES / f"{case}.npz") as file:
        arrays = {key: file[key].astype(np.float64) for key in file.files}

    def params(prefix: str) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for key, value in arrays.items():
            if key.startswith(prefix):
                rule, _, name = key.removeprefix(prefix).partition(".")
                found[f"rules.{ALIASES.get(rule, rule)}.{ours(name)}"] = value
        return found

    p = params("param/fn_modules.")
    for task in tasks_of(facts):
        if task.wire.write == "gate":
            p[gate_of(task)] = np.array([of["gates"][str(task.wire.index)]])
    assert {name: x.shape for name, x in p.items()} == {param.name: param.shape for param in params_of(facts)}
    on = of.get("active")
    fires = [on is None or facts.places[wire.writes].name in on for wire in facts.wires]
    grads = params("grad/param/fn_modules.")
    if "grad/x" in arrays:
        grads["x"] = arrays["grad/x"]
    return Case(
        facts=facts,
        p=p,
        x=arrays["x"],
        live=np.array([fires] * len(arrays["x"])),
        y=arrays["y"],
        cotangent=arrays.get("cotangent"),
        grads=grads,
        summaries=of.get("summaries", {}),
    )
