"""Python and C as languages of generated code: their statements, and their words for formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from volumetric.formula.statements import BASIC, Language


def _number(value: float, infinity: str, nan: str) -> str:
    if math.isinf(value):
        return infinity if value > 0 else f"(-{infinity})"
    if math.isnan(value):
        return nan
    return repr(float(value))


@dataclass(frozen=True, slots=True)
class SourceLanguage:
    """How generated code looks.

    Attributes
    ----------
    formulas : words for expressions, see `formula.statements`
    loop, condition, end : the head of a loop with ``{name}`` and ``{count}``, that of a condition, and what closes them
    let : statement that introduces a number
    stop : end of a statement
    array : statement that introduces a scratch array of ``{count}`` zeros
    choice : one of two values by a condition; the other one is not computed
    integer : a number as an index
    join : "and" between conditions
    helpers : function that formulas use → its definition; in order of use
    comment : start of a comment
    state : the array of a state, by ``{name}``
    """

    formulas: Language
    loop: str
    condition: str
    end: str
    let: str
    stop: str
    array: str
    choice: str
    integer: str
    join: str
    comment: str
    state: str
    helpers: Mapping[str, str]
    number: Callable[[float], str]


_WORDS: Final[Mapping[str, str]] = {
    **BASIC,
    **{name: f"{name}({{0}})" for name in ("exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "softplus", "floor")},
    **{name: f"{name}({{0}})" for name in ("sign", "positive", "twice_normal")},
    "max": "larger({0}, {1})",
    "min": "smaller({0}, {1})",
    "log_of_one_plus": "log1p({0})",
}


def _python_number(value: float) -> str:
    return _number(value, "math.inf", "math.nan")


_PYTHON_HELPERS: Final[Mapping[str, str]] = {
    "exp": "def exp(x):\n    return math.inf if x > 709.0 else math.exp(x)\n",
    "log": "def log(x):\n    return math.log(x) if x > 0 else (-math.inf if x == 0 else math.nan)\n",
    "log1p": "log1p = math.log1p\n",
    "sqrt": "def sqrt(x):\n    return math.sqrt(x) if x >= 0 else math.nan\n",
    "sin": "def sin(x):\n    return math.sin(x) if math.isfinite(x) else math.nan\n",
    "cos": "def cos(x):\n    return math.cos(x) if math.isfinite(x) else math.nan\n",
    "floor": "def floor(x):\n    return float(math.floor(x)) if math.isfinite(x) else x\n",
    "tanh": "tanh = math.tanh\n",
    "sigmoid": "def sigmoid(x):\n    small = math.exp(-abs(x))\n"
    "    return 1 / (1 + small) if x >= 0 else small / (1 + small)\n",
    "softplus": "def softplus(x):\n    return math.log1p(math.exp(-abs(x))) + (x if x > 0 else 0.0)\n",
    "sign": "def sign(x):\n    return (x > 0) - (x < 0) if x == x else x\n",
    "positive": "def positive(x):\n    return 0.0 if x < 0 else x\n",
    "twice_normal": "def twice_normal(x):\n    return 1 + math.erf(x / math.sqrt(2))\n",
    "larger": "def larger(a, b):\n    return a if a > b or a != a else b\n",
    "smaller": "def smaller(a, b):\n    return a if a < b or a != a else b\n",
    "divide": "def divide(a, b):\n    if b:\n        return a / b\n"
    "    return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)\n",
}
PYTHON: Final = SourceLanguage(
    formulas=Language(
        constant=_python_number,
        words={
            **_WORDS,
            "div": "divide({0}, {1})",
            "abs": "abs({0})",
            "where": "({1} if {0} else {2})",
            "either": "({0} or {1})",
            "both": "({0} and {1})",
        },
    ),
    loop="for {name} in range({count}):",
    condition="if {condition}:",
    end="",
    let="{name} = {value}",
    stop="",
    array="{name} = [0.0] * {count}",
    choice="({then} if {condition} else {otherwise})",
    integer="int({0})",
    join=" and ",
    comment="# ",
    state="state.{name}",
    helpers=_PYTHON_HELPERS,
    number=_python_number,
)


def _c_number(value: float) -> str:
    return _number(value, "INFINITY", "NAN")


_C_HELPERS: Final[Mapping[str, str]] = {
    "sigmoid": "static double sigmoid(double x) {\n    double small = exp(-fabs(x));\n"
    "    return x >= 0 ? 1 / (1 + small) : small / (1 + small);\n}\n",
    "softplus": "static double softplus(double x) { return log1p(exp(-fabs(x))) + (x > 0 ? x : 0.0); }\n",
    "sign": "static double sign(double x) { return x == x ? (x > 0) - (x < 0) : x; }\n",
    "positive": "static double positive(double x) { return x < 0 ? 0.0 : x; }\n",
    "twice_normal": "static double twice_normal(double x) { return 1 + erf(x / sqrt(2.0)); }\n",
    "larger": "static double larger(double a, double b) { return a > b || a != a ? a : b; }\n",
    "smaller": "static double smaller(double a, double b) { return a < b || a != a ? a : b; }\n",
}
C: Final = SourceLanguage(
    formulas=Language(
        constant=_c_number,
        words={
            **_WORDS,
            "abs": "fabs({0})",
            "where": "({0} ? {1} : {2})",
            "either": "({0} || {1})",
            "both": "({0} && {1})",
        },
        let="double {name} = {value}",
    ),
    loop="for (int {name} = 0; {name} < {count}; {name}++) {{",
    condition="if ({condition}) {{",
    end="}",
    let="double {name} = {value}",
    stop=";",
    array="double {name}[{count}] = {{0}}",
    choice="({condition} ? {then} : {otherwise})",
    integer="(int)({0})",
    join=" && ",
    comment="// ",
    state="state->{name}",
    helpers=_C_HELPERS,
    number=_c_number,
)
