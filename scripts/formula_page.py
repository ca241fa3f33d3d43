"""Write docs/formulas.md: the element-wise functions of layers and graphs, with their derivatives.

python scripts/formula_page.py            write the file
python scripts/formula_page.py --check    exit with 1 if it is not current
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.pages import write_or_check  # noqa: E402 (the line above must come first)
from volumetric.formula.binary_functions import PAIRS  # noqa: E402
from volumetric.formula.expression import Expression, substitute, variable  # noqa: E402
from volumetric.formula.losses import TERMS  # noqa: E402
from volumetric.formula.optimisers import FORMS  # noqa: E402
from volumetric.formula.unary_functions import ACTIVATIONS, OWN  # noqa: E402

SIGNS = {"add": (" + ", 1), "sub": (" - ", 1), "mul": (" · ", 2), "div": (" / ", 2)}
COMPARED = {"less": "<", "at_most": "≤", "equal": "="}
NAMES = {"twice_normal": "2Φ", "normal_density": "φ", "sigmoid": "σ", "positive": "max0", "log_of_one_plus": "log1p"}
PAGE = """# Formulas

<!-- written by scripts/formula_page.py (`make docs`); do not edit -->

After this page you know the exact function and derivative of each activation, element-wise operation, loss and
optimiser. The code of every device, the derivatives and this page are generated from `volumetric/formula/`, which has
each formula once.

Derivatives are with respect to x, at a kink from the left. σ is the logistic function. Φ and φ are the distribution and
the density of the standard normal distribution. max0(x) is the larger of x and 0.

## Activations

{activations}

## Other functions of one element

{functions}

## Functions of two elements

c is the result and g its gradient. greater(a, b) is 1 where a > b, else 0. mul_nonzero(a, b) is a · b, but 0 where b
is 0, whatever a is.

{pairs}

## Losses of one element

y is a prediction and t its target. Derivatives are with respect to y. `bce_logits` is `bce` on logits.

{losses}

## Steps of optimisers

w is a weight and g its gradient. A step also stores the named values of each weight; a prime marks their new values.
`rest_x` is 1 − x. first and second depend on the number t of the update:

- For momentum, first is whether it is the first update.
- For Adam, first and second are the factors `1 / (1 − beta1^t)` and `1 / √(1 − beta2^t)`. They correct the bias of
  means that began at 0.

{optimisers}
"""


def text(of: Expression, around: int = 0) -> str:
    """Return an expression as text; `around`: the precedence of the surrounding expression."""
    if of.op in SIGNS:
        sign, own = SIGNS[of.op]
        a, b = of.args
        inside = text(a, own) + sign + text(b, own + 1 if b.op in ("div", "sub") or of.op in ("div", "sub") else own)
        return f"({inside})" if own < around else inside
    if of.op == "neg":
        return f"(−{text(of.args[0], 3)})" if around else f"−{text(of.args[0], 2)}"
    if of.op == "where":
        condition, then, otherwise = of.args
        low, high = (text(arg) for arg in condition.args)
        inside = f"{text(then)} where {low} {COMPARED[condition.op]} {high}, else {text(otherwise)}"
        return f"({inside})" if around else inside
    if of.args:
        return f"{NAMES.get(of.op, of.op)}({', '.join(map(text, of.args))})"
    return of.text.removesuffix(".0").replace("-", "−").replace("inf", "∞")


def optional(of: Expression | None) -> str:
    """Return an expression as text, or "none"."""
    return "none" if of is None else text(of)


def step(weight: Expression, after: Mapping[str, Expression]) -> tuple[str, str]:
    """Return the texts of a new weight and of the stored values, with a prime on new values."""
    new = {each: variable(f"{name}′") for name, each in after.items()}
    inside = {name: each.with_args(*(substitute(arg, new) for arg in each.args)) for name, each in after.items()}
    return text(substitute(weight, new)), "; ".join(
        f"{name}′ = {text(each)}" for name, each in inside.items()
    ) or "none"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of formulas."""
    heads = tuple(heads)
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """Return the text of the file."""
    lines = {name: (f"`{name}`", text(of.value), text(of.slope)) for name, of in OWN.items()}
    heads = ("name", "value", "derivative")
    return PAGE.format(
        activations=table(heads, (lines[name] for name in ACTIVATIONS.own)),
        pairs=table(
            ("name", "value", "gradient of a", "gradient of b"),
            ((f"`{name}`", text(of.value), *map(optional, of.input_gradients)) for name, of in PAIRS.items()),
        ),
        losses=table(
            ("name", "meaning", *heads[1:]),
            ((f"`{name}`", of.meaning, text(of.value), text(of.slope)) for name, of in TERMS.own.items()),
        ),
        optimisers=table(
            ("form", "new w", "new stored values"),
            ((f"`{form}`", *step(weight, after)) for form, (weight, after) in FORMS.items()),
        ),
        functions=table(heads, (lines[name] for name in OWN if name not in ACTIVATIONS.own)),
    )


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, {ROOT / "docs" / "formulas.md": page()}))
