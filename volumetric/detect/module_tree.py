"""The tree of modules that the names of tensors spell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from volumetric.base._typing import Shape
from volumetric.loaders.tensor_source import TensorEntry

MAX_PARTS: Final = 24
"""Maximum parts of a name; the rest of a longer name is one part, so no name creates a deep tree."""
_SEPARATOR = re.compile(r"[./]")
_DIGITS = re.compile(r"(\d+)")


@dataclass(slots=True)
class ModuleNode:
    """A module: its tensors by the last part of their names, and its child modules.

    Attributes
    ----------
    path : names of the modules down to this one, with the separators of the file
    """

    path: str = ""
    tensors: dict[str, TensorEntry] = field(default_factory=dict)
    children: dict[str, ModuleNode] = field(default_factory=dict)

    def shape(self, name: str) -> Shape | None:
        """Shape of one of its tensors, or None."""
        entry = self.tensors.get(name)
        return None if entry is None else entry.shape

    def modules(self) -> Iterator[ModuleNode]:
        """Yield this module and all descendants, in natural order of their names."""
        yield self
        for name in sorted(self.children, key=natural):
            yield from self.children[name].modules()

    def all_tensors(self) -> list[TensorEntry]:
        """All tensors of this module and its descendants."""
        return [entry for node in self.modules() for entry in node.tensors.values()]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key that puts ``layer2`` before ``layer10``."""
    parts = _DIGITS.split(name)
    return [(0, int(part[-18:]), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts if part]


def build_tree(entries: Mapping[str, TensorEntry]) -> ModuleNode:
    """Return the root of the tree of names; dots and slashes separate parts, a trailing ``:0`` is dropped."""
    root = ModuleNode()
    for name, entry in entries.items():
        plain = name.removesuffix(":0")
        cuts = [match.start() for match in _SEPARATOR.finditer(plain)][: MAX_PARTS - 1]
        node, start = root, 0
        for cut in cuts:
            part = plain[start:cut]
            node = node.children.setdefault(part, ModuleNode(path=plain[:cut]))
            start = cut + 1
        node.tensors[plain[start:]] = entry
    return root
