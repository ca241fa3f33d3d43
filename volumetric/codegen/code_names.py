"""Names of variables in generated code."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from volumetric.network import Network

_C = (
    "auto bool break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while main"
)
_OURS = "predict classify state State CLASSES math nan x y numbers row rows line"
_MATHS = (
    "exp log log1p sqrt sin cos tanh erf erfc pow fabs floor ceil round fma fmax fmin hypot gamma lgamma tgamma j0 "
    "j1 jn y0 y1 yn inf index printf scanf getchar ungetc stdin"
)
RESERVED: Final = frozenset({*keyword.kwlist, *dir(builtins), *_C.split(), *_OURS.split(), *_MATHS.split()})
"""Words that mean something else in Python, in C or in the file; an input may be called ``input`` all the same."""


def identifier(text: str) -> str:
    """Return a name that both languages accept."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    name = f"n{name}" if not name or name[0].isdigit() else name
    return f"{name}_" if name in RESERVED and name != "input" else name


def identifiers(texts: Iterable[str]) -> list[str]:
    """Return a name for each text, all different."""
    names: list[str] = []
    for text in texts:
        name = identifier(text)
        while name in names:
            name += "_"
        names.append(name)
    return names


def layer_names(network: Network) -> dict[str, str]:
    """Return coordinate → kind and number, ``"dense2"``."""
    counts: Counter[str] = Counter()
    names: dict[str, str] = {}
    for coord, spec in network.layers.items():
        kind = re.sub(r"\W", "", type(spec).__name__, flags=re.ASCII).lower()
        counts[kind] += 1
        names[str(coord)] = f"{kind}{counts[kind]}"
    return names
