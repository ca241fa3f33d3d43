"""Formulas: derivatives against differences in float64, and what is written of each for every device."""

from __future__ import annotations

import operator
import re
from functools import reduce
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.formula.spoken import VECTORS, wgsl_function
from volumetric.devices.cpu.kernels import formula_kernels as vectors
from volumetric.devices.gpu.shaders import read_shader
from volumetric.formula import losses, optimisers
from volumetric.formula.binary_functions import PAIRS
from volumetric.formula.cells import CELLS
from volumetric.formula.derivative import derivative
from volumetric.formula.elementary import DERIVATIVES
from volumetric.formula.expression import Expression, node, variable
from volumetric.formula.losses import TERMS, Y
from volumetric.formula.optimisers import FORMS, fields_of
from volumetric.formula.statements import write_expressions
from volumetric.formula.unary_functions import ACTIVATIONS, FUNCTIONS, OWN, SLOPES, X, slopes_of
from volumetric.graph.numeric.numpy_formulas import function_of

POINTS = np.concatenate([np.linspace(-9, 9, 61), [-1e-3, 1e-3, 0.4, 2.3]])
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 88.8, -104.0], np.float32)
POLES = frozenset({"log", "log_of_one_plus", "sqrt", "rsqrt", "reciprocal"})
"""Functions without a value or a slope at 0, or below."""
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def values(arguments: str, of: Expression, *given: Any) -> np.ndarray:
    return function_of(arguments, of)(*given)[0]


def slopes_by_differences(arguments: str, of: Expression, *given: Any) -> np.ndarray:
    """Of the first argument, in float64."""
    x, *rest = given
    step = 1e-5 * np.maximum(1, np.abs(x))
    return (values(arguments, of, x + step, *rest) - values(arguments, of, x - step, *rest)) / (2 * step)


def on_vectors(of: Expression, **given: Any) -> np.ndarray:
    """What the text of the CPU's kernels means."""
    statements, [text] = write_expressions([of], vectors.VECTORS)
    kind = next(iter(given.values())).dtype.type
    scope = {**VECTORS, "splat": kind, **given}
    exec("\n".join((*statements, f"result = {text}")), scope)
    return np.asarray(scope["result"])


def away_from_kinks(name: str) -> np.ndarray:
    points = POINTS[np.abs(POINTS) > 1e-4]
    if name == "floor":
        points = points[np.abs(points - np.round(points)) > 1e-3]
    return np.abs(points[np.abs(points) > 0.1]) if name in POLES else points


@pytest.mark.parametrize("name", OWN)
def test_slopes_of_functions_are_their_differences(name: str) -> None:
    x, of = away_from_kinks(name), FUNCTIONS[name]
    factors = np.float64(1.7), np.float64(0.3)
    want = slopes_by_differences("x alpha beta", of.value, x, *factors)
    for slope in (of.slope, derivative(of.value, X)):
        np.testing.assert_allclose(values("x alpha beta", slope, x, *factors), want, rtol=2e-6, atol=2e-7)
    gradient = of.input_gradient
    if gradient is None:
        assert not want.any()
    else:
        y = values("x alpha beta", of.value, x, *factors)
        got = values("x y g alpha beta", gradient, x, y, 0.5 + x, *factors)
        np.testing.assert_allclose(got, (0.5 + x) * want, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", DERIVATIVES)
def test_slopes_of_elementary_functions_are_their_differences(name: str) -> None:
    x = away_from_kinks(name)
    of = node(name, X)
    want = slopes_by_differences("x", of, x)
    np.testing.assert_allclose(values("x", derivative(of, X), x), want, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS.own if (of := slopes_of(name)) and of.from_result])
def test_a_slope_by_the_result_is_that_by_the_input(name: str) -> None:
    x = away_from_kinks(name)
    y, slopes = values("x", ACTIVATIONS[name].value, x), slopes_of(name)
    assert slopes is not None
    assert slopes.from_result is not None
    by_result = values("x", SLOPES[slopes.from_result], y)
    np.testing.assert_allclose(by_result, values("x", ACTIVATIONS[name].slope, x), rtol=1e-9, atol=1e-12)


def test_at_a_kink_the_slope_is_that_from_the_left() -> None:
    zero = np.array([0.0, -0.0])
    for name, want in (("relu", 0.0), ("leaky_relu", 0.01), ("relu2", 0.0)):
        np.testing.assert_array_equal(values("x", SLOPES[name], zero), [want, want])


@pytest.mark.parametrize("name", OWN)
def test_every_device_computes_the_same_function(name: str) -> None:
    x = np.concatenate([POINTS.astype(np.float32), ODD])
    factors = {"alpha": np.float32(1.7), "beta": np.float32(0.3)}
    want = values("x alpha beta", FUNCTIONS[name].value, x, *factors.values())
    np.testing.assert_allclose(on_vectors(FUNCTIONS[name].value, x=x, **factors), want, rtol=1e-6)
    apply = wgsl_function(read_shader(f"unary/{name}"), "apply", dims=SimpleNamespace(**factors))
    np.testing.assert_allclose(apply(x), want, rtol=1e-6)


@pytest.mark.parametrize("name", SLOPES)
def test_every_device_computes_the_same_slope(name: str) -> None:
    x = np.concatenate([POINTS.astype(np.float32), ODD])
    want = values("x", SLOPES[name], x)
    np.testing.assert_allclose(on_vectors(SLOPES[name], x=x), want, rtol=1e-6)
    np.testing.assert_allclose(wgsl_function(read_shader(f"graph/slope/{name}"), "slope")(x), want, rtol=1e-6)


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_of_pairs_are_their_differences(name: str) -> None:
    a, b = np.meshgrid(np.linspace(-3, 3, 7) + 0.1, np.array([-2.3, -1.0, 0.7, 1.9]))
    of = PAIRS[name]
    if name == "mask":
        b = np.ones_like(b)  # it holds 0 and 1 only
    c = values("a b", of.value, a, b)
    both = ("a b", (a, b)), ("b a", (b, a))
    for (arguments, given), gradient, letter in zip(both, of.input_gradients, "ab", strict=True):
        want = slopes_by_differences(arguments, of.value, *given)
        if gradient is None:
            assert letter in of.constant or not want.any()
        else:
            got = values("a b c g", gradient, a, b, c, 0.5 + a)
            np.testing.assert_allclose(got, (0.5 + a) * want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PAIRS)
def test_every_device_computes_the_same_of_pairs(name: str) -> None:
    a, b = (each.ravel() for each in np.meshgrid(ODD, ODD[::-1]))
    want = values("a b", PAIRS[name].value, a, b)
    np.testing.assert_array_equal(on_vectors(PAIRS[name].value, a=a, b=b), want)
    np.testing.assert_array_equal(wgsl_function(read_shader(f"graph/binary/{name}"), "combine")(a, b), want)


@pytest.mark.parametrize("name", TERMS.own)
def test_slopes_of_losses_are_their_differences(name: str) -> None:
    of = TERMS[name]
    y, t = np.meshgrid(np.linspace(0.05, 0.95, 9), [0.0, 0.3, 1.0])
    if name != "bce":
        y = 5 * y - 2
    fields = [np.float64(0.7)] * len(of.fields)
    arguments = " ".join(("y", "t", *of.fields))
    want = slopes_by_differences(arguments, of.value, y, t, *fields)
    for slope in (of.slope, derivative(of.value, Y)):
        np.testing.assert_allclose(values(arguments, slope, y, t, *fields), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TERMS.own)
def test_every_device_computes_the_same_loss(name: str) -> None:
    of = TERMS[name]
    y, t = (each.ravel() for each in np.meshgrid(ODD, np.array([0.0, 0.3, 1.0], np.float32)))
    fields = dict.fromkeys(of.fields, np.float32(0.7))
    arguments = " ".join(("y", "t", *of.fields))
    term = wgsl_function(
        read_shader(f"graph/loss/{name}"), "term", **{key.upper(): item for key, item in fields.items()}
    )
    for part, got in zip((of.value, of.slope), term(y, t), strict=True):
        want = values(arguments, part, y, t, *fields.values())
        np.testing.assert_array_equal(on_vectors(part, y=y, t=t, **fields), want)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("form", FORMS)
def test_every_device_computes_the_same_update(form: str) -> None:
    (weight, after), fields = FORMS[form], fields_of(form)
    w, g, *slots = np.random.default_rng(2).standard_normal((2 + len(after), 40)).astype(np.float32)
    slots = [np.abs(slot) for slot in slots]
    numbers = {name: np.float32(0.1 + 0.1 * i) for i, name in enumerate(("rate", "second", *fields))}
    for first in (np.float32(0), np.float32(1)):
        given = {"w": w, "g": g, "first": first, **numbers, **dict(zip(after, slots, strict=True))}
        want = [values(" ".join(given), each, *given.values()) for each in (weight, *after.values())]
        for each, value in zip((weight, *after.values()), want, strict=True):
            np.testing.assert_array_equal(on_vectors(each, **given), value)
        for folder in ("update", "trial"):
            kept = {f"slot_{i}": [slot] for i, slot in enumerate(slots)}
            scalars = [numbers["rate"], 1, first, numbers["second"]]
            text = read_shader(f"graph/{folder}/{form}")
            step = wgsl_function(text, "moved", scalars=scalars, **kept, **{n.upper(): numbers[n] for n in fields})
            np.testing.assert_allclose(step(w, g, 0), want[0], rtol=1e-6)
            for [slot], old, new in zip(kept.values(), slots, want[1:], strict=True):
                np.testing.assert_allclose(slot, new if folder == "update" else old, rtol=1e-6)


@pytest.mark.parametrize("name", CELLS)
def test_the_way_back_through_a_cell_is_the_derived_one(name: str) -> None:
    of, rng = CELLS[name], np.random.default_rng(5)
    before = {f"{kind}{i}": rng.standard_normal(50) for kind in "xr" for i in range(of.blocks)}
    before |= {state: np.abs(rng.standard_normal(50)) for state in of.after}
    arguments = " ".join(before)
    given = before | {each: values(arguments, of.keeps[each], *before.values()) for each in of.keeps}
    given |= {f"{each}_after": values(arguments, of.after[each], *before.values()) for each in of.after}
    given |= {f"g_{each}": rng.standard_normal(50) for each in of.after}
    inputs = [f"x{i}" for i in range(of.blocks)] + [f"r{i}" for i in range(of.blocks)] + list(of.direct)
    whole = reduce(operator.add, (variable(f"g_{state}") * value for state, value in of.after.items()))
    for back in (of.back, of.derive_back):
        for wanted, each in zip(inputs, (*back.x, *back.r, *back.direct.values()), strict=True):
            order = {wanted: given[wanted], **given}
            want = slopes_by_differences(" ".join(order), whole, *order.values())
            got = values(" ".join(order), each, *order.values())
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=wanted)


@pytest.mark.parametrize("name", CELLS)
def test_every_device_computes_the_same_step_of_a_cell(name: str) -> None:
    of, rng = CELLS[name], np.random.default_rng(6)
    x, r = rng.standard_normal((2, 4, 50)).astype(np.float32)
    states = np.abs(rng.standard_normal((len(of.after), 50))).astype(np.float32)
    given = {f"{kind}{i}": of_kind[i] for kind, of_kind in (("x", x), ("r", r)) for i in range(of.blocks)}
    given |= dict(zip(of.after, states, strict=True))
    results = [*of.after.values(), *of.keeps.values()]
    want = [values(" ".join(given), each, *given.values()) for each in results]
    for each, value in zip(results, want, strict=True):
        np.testing.assert_allclose(on_vectors(each, **given), value, rtol=1e-6)
    kinds = {kind: lambda: SimpleNamespace(kept={}, x={}, r={}, c={}) for kind in ("Step", "Back")}
    text = re.sub(r"var s: (\w+);", r"let s = \1();", read_shader(f"graph/cell/{name}"))
    step = wgsl_function(text, "cell", **kinds)(x, r, states[0], states[1:])
    kept = [*want[len(of.after) :], *want[1 : len(of.after)]]
    for got, value in zip((step.h, *step.kept.values()), (want[0], *kept), strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-6)
    g = rng.standard_normal((len(of.after), 50)).astype(np.float32)
    given |= dict(zip((f"{state}_after" for state in of.after), want, strict=False))
    given |= dict(zip((*(f"g_{state}" for state in of.after), *of.keeps), (*g, *want[len(of.after) :]), strict=True))
    back = wgsl_function(text, "cell_back", **kinds)(g[0], g[1:], want[0], kept, states[0], states[1:])
    direct = back.c.values() if len(of.after) > 1 else [vars(back).get("h")] * len(of.direct)
    found = (*back.x.values(), *back.r.values(), *direct)
    for got, each in zip(found, (*of.back.x, *of.back.r, *of.back.direct.values()), strict=True):
        value = values(" ".join(given), each, *given.values())
        np.testing.assert_allclose(got, value, rtol=1e-6)
        np.testing.assert_allclose(on_vectors(each, **given), value, rtol=1e-6)


def test_forms_fit_the_room_of_kernels() -> None:
    assert max(len(fields_of(form)) for form in FORMS) <= optimisers.FIELDS
    assert max(len(slots) for _, slots in FORMS.values()) <= optimisers.SLOTS
    assert max(len(of.fields) for of in TERMS.own.values()) <= losses.FIELDS


def test_equals_pass_the_gradient_to_the_first() -> None:
    one = np.ones(1)
    for name in ("max", "min"):
        first, second = PAIRS[name].input_gradients
        assert first is not None
        assert second is not None
        assert (values("a b g", first, one, one, 3 * one), values("a b g", second, one, one, 3 * one)) == (3, 0)


def test_a_derivative_is_what_one_would_write_by_hand() -> None:
    x, c = variable("x"), variable("c")
    assert derivative(x * node("sigmoid", x), x) is node("sigmoid", x) * (1 + x * (1 - node("sigmoid", x)))
    assert derivative(0.25 * x * x * x, x) is 0.75 * x * x
    assert derivative(c * x - x * c, c) is derivative(x, c) is derivative(node("sign", x), x)
