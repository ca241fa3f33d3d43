"""What documents say that a Python example prints, and what it prints.

A ```` ```text ```` block right below a Python block is its output. Times may differ, and so may the last digits of
other numbers: sums have another order in other versions of NumPy.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
_EXAMPLE = re.compile(
    r"^```python\n(?P<code>(?:(?!```).)*?)^```\n(?:\n?```text\n(?P<shown>.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
_TIME = re.compile(r"\d[\d.,]*\s?(?:µs|ms|s|min|tokens/s)\b")
_CURVE = re.compile("[▁▂▃▄▅▆▇█]+")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")


def examples(document: str) -> list[tuple[str, str]]:
    """Return the Python examples of a document, each with what is shown as its output, or nothing."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [(match["code"], match["shown"] or "") for match in _EXAMPLE.finditer(text)]


def assert_printed(printed: str, shown: str, where: str) -> None:
    """Check what an example printed against what its document shows."""
    for line, (got, wanted) in enumerate(zip_longest(_lines(printed), _lines(shown)), 1):
        assert got is not None, f"{where}, line {line}: nothing is printed, shown is {wanted!r}"
        assert wanted is not None, f"{where}, line {line}: {got!r} is printed, and not shown"
        assert _words(got) == _words(wanted), f"{where}, line {line}: {got!r} is printed, shown is {wanted!r}"
        for a, b in zip(_NUMBER.findall(got), _NUMBER.findall(wanted), strict=True):
            assert _close(a, b), f"{where}, line {line}: {a} is printed, shown is {b}"


def _lines(text: str) -> list[str]:
    return [_CURVE.sub("▁", _TIME.sub("time", line)) for line in text.strip().splitlines()]


def _words(line: str) -> list[str]:
    """Return what stands between the numbers, spaces aside: a sign moves columns."""
    return ["".join(part.split()) for part in _NUMBER.split(line)]


def _close(a: str, b: str) -> bool:
    """Whether two numbers differ by two units of the last shown digit or a hundredth at most; integers are equal."""
    if "." not in b and "e" not in b:
        return a == b
    mantissa, _, exponent = b.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(float(a) - float(b)) <= max(2.001 * unit, abs(float(b)) / 100)
