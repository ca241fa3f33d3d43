"""Registries that modules fill: a name's module is imported when the name is first asked for.

A model uses a handful of the layer kinds and operations that there are; importing the rest would be a fifth of the time
to its first token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Generic, TypeVar

from volumetric.plugins import load_plugins

T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """Name → what a module declared under it when it was imported. Counting, or going through it, imports all.

    Where none of ours declares a name, packages of others may: see `volumetric.plugins`.

    Parameters
    ----------
    load : imports the module that declares a name, if there is one; for None, every module that declares something
    """

    def __init__(self, load: Callable[[str | None], object]) -> None:
        self._load = load
        self._declared: dict[str, T] = {}

    def declared(self, name: str) -> bool:
        """Whether a module that is already imported declares the name."""
        return name in self._declared

    def __getitem__(self, name: str) -> T:
        if name not in self._declared:
            self._load(name)
        if name not in self._declared:
            load_plugins()
        return self._declared[name]

    def __setitem__(self, name: str, value: T) -> None:
        self._declared[name] = value

    def __delitem__(self, name: str) -> None:
        del self._declared[name]

    def __iter__(self) -> Iterator[str]:
        self._load(None)
        load_plugins()
        return iter(list(self._declared))

    def __len__(self) -> int:
        self._load(None)
        load_plugins()
        return len(self._declared)


def modules_of(package: str, names: Mapping[str, str]) -> Callable[[str | None], None]:
    """Return what loads the modules of a package: module → the names that it declares, with spaces between."""
    homes = {name: f"{package}.{module}" for module, declared in names.items() for name in declared.split()}

    def load(name: str | None) -> None:
        for module in dict.fromkeys(homes.values()) if name is None else filter(None, [homes.get(name)]):
            import_module(module)

    return load
