"""Expressions as WGSL: preludes generated from formulas, by the names of the files they replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Final

from volumetric.base.errors import SpecError
from volumetric.base.registry import on_redefinition
from volumetric.formula.binary_functions import FUSED, PAIRS
from volumetric.formula.cells import CELLS
from volumetric.formula.expression import Expression
from volumetric.formula.losses import TERMS
from volumetric.formula.optimisers import FORMS, fields_of, step_of
from volumetric.formula.statements import BASIC, Language, write_expressions
from volumetric.formula.unary_functions import FUNCTIONS, OWN, SLOPES, slope_by_name

_WGSL: Final = Language(
    constant=lambda value: repr(value).replace("inf", "infinity()"),
    let="let {name} = {value};",
    words={
        **BASIC,
        **{name: f"{name}({{0}})" for name in ("sqrt", "abs", "softplus", "positive", "log_of_one_plus")},
        "where": "select({2}, {1}, {0})",
        "either": "({0} || {1})",
        "both": "({0} && {1})",
        "max": "maximum({0}, {1})",
        "min": "minimum({0}, {1})",
        "exp": "exponential({0})",
        "log": "logarithm({0})",
        "sign": "sign_of({0})",
        "floor": "floor_of({0})",
        "sin": "turned({0}, 0)",
        "cos": "turned({0}, 1)",
        "tanh": "hyperbolic_tangent({0})",
        "sigmoid": "logistic({0})",
        "twice_normal": "(2.0 * normal_below({0}))",
    },
)


def _function(head: str, results: Sequence[Expression], result: str, names: Mapping[str, str] | None = None) -> str:
    """Return a function whose result contains the texts of expressions."""
    statements, texts = write_expressions(results, _WGSL, names)
    return "\n".join((f"{head} {{", *statements, f"return {result.format(*texts)};", "}\n"))


def _unary(name: str) -> str:
    names = {"alpha": "dims.alpha", "beta": "dims.beta"}
    return _function("fn apply(x: f32) -> f32", [FUNCTIONS[name].value], "{0}", names)


def _slope(name: str) -> str:
    return _function("fn slope(x: f32) -> f32", [slope_by_name(name)], "{0}")


def _pair(name: str) -> str:
    return _function("fn combine(a: f32, b: f32) -> f32", [PAIRS[name].value], "{0}")


def _steps(name: str) -> str:
    """A function of the number of a step in `FUSED`, and of its operands."""
    lines = ["fn stepped(code: u32, a: f32, b: f32, alpha: f32, beta: f32) -> f32 {", "switch (code) {"]
    for code, each in enumerate(FUSED):
        value = (PAIRS if each in PAIRS else FUNCTIONS)[each].value
        statements, [text] = write_expressions([value], _WGSL, {"x": "a"})
        case = f"case {code}u" if code < len(FUSED) - 1 else "default"
        lines.append(" ".join((case, ": {", *statements, f"return {text};", "}")))
    return "\n".join((*lines, "}", "}\n"))


def _written_formula(name: str) -> str:
    """A formula as code: the tensors of its reads, then for each step its function and two values, see `formulas`."""
    reads, *steps = name.split(";")
    tensors = reads.split(",")
    lines = [f"@group(0) @binding({i}) var<storage, read> x_{i}: array<f32>;" for i in sorted(set(tensors))]
    lines += [
        "fn read_at(i: u32, place: vec4<u32>) -> u32 {",
        "var at = dims.begin[i].y;",
        "//@unroll",
        "for (var axis = 4u - RANK; axis < 4u; axis++) { at += place[axis] * dims.stride[i][axis]; }",
        "return at;",
        "}",
    ]
    body = [f"let v{n} = x_{i}[read_at({n}u, place)];" for n, i in enumerate(tensors)]
    for number, step in enumerate(steps):
        function, a, b = step.split(",")
        statements, [text] = write_expressions([_step_value(function)], _WGSL, {"x": "b" if "." in function else "a"})
        lines += [f"fn step_{number}(a: f32, b: f32, alpha: f32, beta: f32) -> f32 {{", *statements]
        lines += [f"return {'a * ' if '.' in function else ''}({text});", "}"]
        factors = ", ".join(f"bitcast<f32>(dims.steps[{number}].{word})" for word in "zw")
        body.append(f"let v{len(tensors) + number} = step_{number}(v{a}, v{b}, {factors});")
    lines += ["fn computed(place: vec4<u32>) -> f32 {", *body, f"return v{len(tensors) + len(steps) - 1};"]
    return "\n".join((*lines, "}\n"))


def _step_value(function: str) -> Expression:
    if function.startswith("slope."):
        return slope_by_name(function.removeprefix("slope."))
    return (PAIRS if function in PAIRS else FUNCTIONS)[function].value


def _term(name: str) -> str:
    of = TERMS[name]
    names = {field: field.upper() for field in of.fields}
    return _function("fn term(y: f32, t: f32) -> vec2<f32>", [of.value, of.slope], "vec2<f32>({0}, {1})", names)


def _update(form: str, *, trial: bool = False, first: int = 2, of: str = "") -> str:
    """The new weight; unless it is a trial, the new slots are written too.

    Parameters
    ----------
    first : binding of the first slot
    of : ending of the names of slots and function
    """
    weight, after = step_of(form)
    access = "read" if trial else "read_write"
    slots = [f"slot_{i}{of}" for i in range(len(after))]
    lines = [f"@group(0) @binding({first + i}) var<storage, {access}> {s}: array<f32>;" for i, s in enumerate(slots)]
    lines += [f"fn moved{of}(w: f32, g: f32, i: u32) -> f32 {{"]
    lines += [f"let old_{i} = {slot}[i];" for i, slot in enumerate(slots)]
    names = {name: name.upper() for name in fields_of(form)} | {name: f"old_{i}" for i, name in enumerate(after)}
    names |= {"rate": "scalars[0]", "first": "scalars[2]", "second": "scalars[3]"}
    statements, [new, *values] = write_expressions([weight] if trial else [weight, *after.values()], _WGSL, names)
    lines += [*statements, f"let after = {new};"]
    lines += [f"{slot}[i] = {value};" for slot, value in zip(slots, values, strict=False)]  # a trial has no values
    return "\n".join((*lines, "return after;", "}\n"))


_FIRST: Final = 16
"""The first binding of arrays by number: those before are of the kernel, `std` and the linker."""


_SCALARS: Final = """
@group(0) @binding(0) var<storage, read> scalars: array<f32>;
@group(0) @binding(2) var<storage, read> written: array<f32>;
fn is_off() -> bool {
    if (DIVIDED) { return written[0] == 0.0; }
    return scalars[4] == 0.0;
}
"""


def _steps_of_many(name: str, *, trial: bool = False) -> str:
    """Optimiser steps of several arrays: ``"3 adam"``, their number and the form."""
    count, form = name.split(" ", 1)
    each = 2 + len(step_of(form)[1])
    lines, cases = [], []
    for k in range(int(count)):
        at, of = _FIRST + k * each, f"_of_{k}"
        access = "read" if trial else "read_write"
        lines += [f"@group(0) @binding({at}) var<storage, {access}> param{of}: array<f32>;"]
        lines += [f"@group(0) @binding({at + 1}) var<storage, read> grad{of}: array<f32>;"]
        lines += [_update(form, trial=trial, first=at + 2, of=of)]
        new = f"moved{of}(param{of}[i], grad{of}[i] * scalars[1], i)"
        cases += [f"return select({new}, param{of}[i], is_off());" if trial else f"param{of}[i] = {new};"]
    head = "fn value_at(which: u32, i: u32) -> f32" if trial else "fn step_at(which: u32, i: u32)"
    return "\n".join((_SCALARS, *lines, _choice(head, cases)))


def _values_of_many(count: str) -> str:
    """The elements of several arrays."""
    numbers = range(int(count))
    lines = [f"@group(0) @binding({_FIRST + k}) var<storage, read> param_of_{k}: array<f32>;" for k in numbers]
    cases = [f"return param_of_{k}[i];" for k in numbers]
    return "\n".join((*lines, _choice("fn value_at(which: u32, i: u32) -> f32", cases)))


def _choice(head: str, cases: Sequence[str]) -> str:
    """Return a function that does one of `cases`, by the number `which`."""
    labels = [*(f"case {k}u" for k in range(len(cases) - 1)), "default"]
    return "\n".join((f"{head} {{", "switch (which) {", *map("{}: {{ {} }}".format, labels, cases), "}", "}\n"))


def _cell(name: str) -> str:
    """A step of a cell and the step back, for `graph/cells`: states other than h and kept values by number."""
    of = CELLS[name]
    head, *others = of.after
    stored = (*of.keeps, *(f"{other}_after" for other in others))
    states = {head: "h", **{other: f"c[{i}]" for i, other in enumerate(others)}}
    pre = {f"{kind}{i}": f"{kind}[{i}]" for kind in "xr" for i in range(of.blocks)}
    results = [*of.after.values(), *of.keeps.values()]
    statements, [h, *rest] = write_expressions(results, _WGSL, states | pre)
    rest = [*rest[len(others) :], *rest[: len(others)]]
    lines = [f"const BLOCKS: u32 = {of.blocks}u;", f"const KEPT: u32 = {len(stored)}u;"]
    lines += ["fn cell(x: array<f32, 4>, r: array<f32, 4>, h: f32, c: Others) -> Step {", "var s: Step;", *statements]
    lines += [f"s.h = {h};", *(f"s.kept[{i}] = {text};" for i, text in enumerate(rest)), "return s;", "}"]
    names = states | {each: f"kept[{i}]" for i, each in enumerate(stored)} | {f"{head}_after": "y", f"g_{head}": "g"}
    names |= {f"g_{other}": f"arrived[{i}]" for i, other in enumerate(others)}
    statements, texts = write_expressions([*of.back.x, *of.back.r, *of.back.direct.values()], _WGSL, names)
    lines += ["fn cell_back(g: f32, arrived: Others, y: f32, kept: Kept, h: f32, c: Others) -> Back {", "var s: Back;"]
    places = (*pre.values(), *(states[state] for state in of.back.direct))
    lines += [*statements, *(f"s.{place} = {text};" for place, text in zip(places, texts, strict=True))]
    return "\n".join((*lines, "return s;", "}\n"))


FOLDERS: Final[Mapping[str, tuple[Mapping[str, object], Callable[[str], str]]]] = {
    "unary": (OWN, _unary),
    "graph/slope": (SLOPES, _slope),
    "graph/binary": (PAIRS, _pair),
    "graph/loss": (TERMS.own, _term),
    "graph/update": (FORMS, _update),
    "graph/trial": (FORMS, partial(_update, trial=True)),
    "graph/steps": ({}, _steps_of_many),
    "graph/trials": ({}, partial(_steps_of_many, trial=True)),
    "graph/values": ({}, _values_of_many),
    "graph/cell": (CELLS, _cell),
    "graph/fused": ({"steps": FUSED}, _steps),
    "graph/written": ({}, _written_formula),
}
"""Folder → the engine's entries in it by name, and their generator; packages may register more.

Names of preludes for several arrays begin with a number, so they are not listed.
"""


@cache
def prelude(folder: str, name: str) -> str:
    """Return a prelude of a folder whose preludes are generated from formulas.

    Raises
    ------
    SpecError : the formula does not exist
    """
    known, write = FOLDERS[folder]
    try:
        return write(name)
    except KeyError:
        hint = f"there are: {', '.join(known)}"
        raise SpecError(f"no formula for the prelude {folder}/{name}", hint=hint) from None


on_redefinition(prelude.cache_clear)
