"""Programs of all that there is, drawn at random, with parts of which nothing can be seen."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from volumetric.base.errors import SpecError
from volumetric.program import (
    Canvas,
    Constraints,
    Edge,
    Identity,
    In,
    Learning,
    Level,
    Meter,
    Out,
    Program,
    Rects,
    Region,
    Signal,
    Tile,
)
from volumetric.program.layer.name_checks import FAMILIES, OPERATORS, RULES
from volumetric.program.layer.program_layer import Program as Layer
from volumetric.program.layer.recipes import CARRIERS, OF_MODE

WIDTH, SIDES = 4, (4, 3)
NAMES = ("eye", "belief", "err", "store", "plan", "act")
OPTIONS: dict[str, dict[str, int]] = {
    "perceiver": {"latents": 2},
    "sparse": {"top_k": 2},
    "local": {"window": 2},
    "random_fixed": {"count": 2},
    "mixture": {"experts": 2, "top_k": 1},
    "mamba": {"state_size": 2},
}


def maybe(of: st.SearchStrategy[Any], times: int = 1) -> st.SearchStrategy[Any]:
    """None, or in one of some cases something."""
    return st.one_of(*[st.none()] * times, of)


@st.composite
def clocks(draw: st.DrawFn, meters: list[str], depth: int = 2) -> str:
    """A clock that looks at meters, a signal and steps; some of them always hold, or never."""
    atoms = ["every(1)", "!every(1)", "every(2)", "every(3, 1)", "on(now)", *(f"{m} > 0.1" for m in meters)]
    atoms += [f"{m} >= 0" for m in meters]
    if not depth or draw(st.booleans()):
        return draw(st.sampled_from(atoms))
    inside = clocks(meters, depth - 1)
    kind = draw(st.sampled_from(["and", "or", "not", "cooldown", "silence"]))
    if kind in ("and", "or"):
        return f"({draw(inside)} {'&&' if kind == 'and' else '||'} {draw(inside)})"
    return f"!({draw(inside)})" if kind == "not" else f"{kind}({draw(inside)}, {draw(st.integers(1, 3))})"


@st.composite
def regions(draw: st.DrawFn, number: int, meters: list[str], frames: int) -> Region:
    """A region, mostly of a box of its own."""
    at = draw(st.integers(0, 3)) if draw(st.integers(0, 5)) == 0 else number % 4
    column = draw(st.sampled_from([(0, 1), (0, 2), (1, 2), (2, 3)])) if number < 4 else (2, 3)
    when = (0, frames) if draw(st.booleans()) else (0, 1)
    family, carrier = draw(st.sampled_from(FAMILIES)), carrier_of(NAMES[number])
    clock = draw(maybe(clocks(meters), 2))
    if clock is not None and draw(st.integers(0, 4)) == 0:
        clock = f"inner({clock}, 1)"
    losses = [loss for mode in OF_MODE.values() for loss in mode if carrier in CARRIERS.get(loss, (carrier,))]
    learning = maybe(st.builds(Learning, st.just("supervised"), st.dictionaries(st.sampled_from(losses), st.just(1.0))))
    return Region(
        (when, (at, at + 1), column),
        family=family,
        carrier=carrier,
        period=draw(st.sampled_from([1, 1, 2])),
        clock=clock,
        residual=draw(maybe(st.booleans())),
        learning=draw(learning),
        keep=draw(st.sampled_from(["auto", "auto", "runtime", "freeze"])),
        identity=draw(maybe(st.builds(Identity, st.just(2), st.sampled_from(["persistent", "ephemeral"])), 4)),
        constraints=draw(maybe(st.just(Constraints()))),
    )


def carrier_of(name: str) -> Any:
    """Carriers go with names, so that clocks can look at meters."""
    return {"err": "residual", "belief": "filter", "store": "memory", "plan": "diffusive"}.get(name, "deterministic")


@st.composite
def edges(draw: st.DrawFn, names: list[str], meters: list[str]) -> Edge:
    """An edge; some write nothing."""
    rule = draw(maybe(st.sampled_from(RULES)))
    lag = draw(maybe(st.integers(0, 2), 2))
    return Edge(
        draw(st.sampled_from(names)),
        draw(st.sampled_from(names)),
        rule=rule,
        operator=draw(st.sampled_from(OPERATORS)),
        write=draw(maybe(st.sampled_from(["add", "gate", "replace"]))),
        weight=draw(st.sampled_from([1.0, 1.0, 0.5, 0.0])),
        when=draw(maybe(clocks(meters), 2)),
        mask=draw(maybe(st.sampled_from([Tile((1, 1)), Rects([(0, 1, 0, 1)]), Rects([])]), 4)),
        lag=lag,
        fill=draw(st.sampled_from(["drop", "hold", "lerp"])),
        options=OPTIONS.get(rule or "", {}),
    )


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program that can be run."""
    frames = draw(st.sampled_from([1, 1, 1, 2]))
    names: list[str] = list(NAMES[: draw(st.integers(2, len(NAMES)))])
    meters = [f"{name}.prediction" for name in names if carrier_of(name) in ("residual", "filter")]
    given = draw(maybe(st.just(Meter("eye", ("prediction",), corrected=True))))
    parity = draw(st.integers(0, 4)) == 0
    own = [Meter(name.partition(".")[0], signed=True) for name in meters] if parity else []
    watched = meters + ([] if given is None else ["eye.prediction"])
    made = {name: draw(regions(n, watched, frames)) for n, name in enumerate(names)}
    ports: dict[str, Any] = {"x": In("eye", 2), "now": Signal()}
    if draw(st.booleans()):
        ports["more"] = In(draw(st.sampled_from(names)), 1, "add")
    if "plan" in names and draw(st.booleans()):
        ports["noise"] = Level("plan")
    ports["y"] = Out(draw(st.sampled_from(names)), 2, draw(st.sampled_from(["mean", "flatten"])))
    fields = {
        "meters": [*own, *([] if given is None else [given])],
        "share": draw(st.sampled_from(["edge", "rule"])),
        "parity": parity,
        "heads": 2,
    }
    kept: list[Edge] = []
    for edge in draw(st.lists(edges(names, watched), max_size=8)):
        try:  # masks do not fit slots, nor rules all sizes: such edges are left out
            Layer(program=Program(Canvas(frames, SIDES, WIDTH, made), [edge], ports, **fields)).params()
        except SpecError:
            continue
        kept.append(edge)
    return Program(Canvas(frames, SIDES, WIDTH, made), kept, ports, **fields)
