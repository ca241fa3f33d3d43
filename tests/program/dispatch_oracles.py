"""Dispatch as another package computes it: programs, names and shapes brought to ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.program.attention_oracles import ours
from volumetric.base._typing import Array
from volumetric.program import import_canvas
from volumetric.program.layer.edge_tasks import gate_of, params_of, tasks_of
from volumetric.program.layer.name_checks import ALIASES
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import Facts, facts_of

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
    """The program of a case, as files of the package are read; edges read what is ``dst`` there."""
    layout = of["layout"]
    modes = of.get("modes") or ["add"] * len(of["connections"])
    topology = [{**link, "write_mode": mode} for link, mode in zip(of["connections"], modes, strict=True)]
    file = {"layout": layout, "regions": layout["regions"], "topology": topology}
    return import_canvas(json.dumps(file), heads=of["heads"]).program


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
