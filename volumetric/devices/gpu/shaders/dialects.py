"""Dialects of WGSL: what the compilers behind WebGPU want to read differently, as data.

The text of kernels is the same for all. A module begins with the directives that its dialect wants for what it uses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Dialect = Literal["naga", "tint"]
MATRIX_UNITS: Final = "matrix/units"
"""A prelude with the operations of matrix units; each dialect has its own file for them."""

_SUBGROUPS: Final = re.compile(r"\bsubgroup[A-Z]\w*\s*\(|@builtin\(subgroup_|\bsubgroup_matrix_")
_SUBGROUP_MATRICES: Final = re.compile(r"\bsubgroup_matrix_")
_HALVES: Final = re.compile(r"\bf16\b|\bvec[234]h\b|\b\d+(?:\.\d*)?h\b")


@dataclass(frozen=True, slots=True)
class WgslDialect:
    """One dialect.

    Attributes
    ----------
    directives : directive → what a text that needs it contains, in the order in which they are written
    matrix_units : prelude that `MATRIX_UNITS` stands for
    """

    directives: tuple[tuple[str, re.Pattern[str]], ...]
    matrix_units: str

    def header(self, text: str) -> str:
        """Return the directives that `text` needs, each on a line."""
        return "".join(f"{directive}\n" for directive, use in self.directives if use.search(text))


DIALECTS: Final[dict[Dialect, WgslDialect]] = {
    # wgpu's compiler knows subgroups without a directive, and refuses a module that has one for them.
    "naga": WgslDialect(
        (("enable f16;", _HALVES), ("enable wgpu_cooperative_matrix;", re.compile(r"\bcoop_mat"))), "matrix/naga"
    ),
    # That of Dawn and of browsers wants each extension of the standard by its name.
    "tint": WgslDialect(
        (
            ("enable f16;", _HALVES),
            ("enable subgroups;", _SUBGROUPS),
            ("enable chromium_experimental_subgroup_matrix;", _SUBGROUP_MATRICES),
            ("diagnostic(off, chromium.subgroup_matrix_uniformity);", _SUBGROUP_MATRICES),
        ),
        "matrix/tint",
    ),
}
