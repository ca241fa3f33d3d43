"""Registries filled by modules: the module of a name is imported on the first lookup of the name.

A model uses a handful of layer kinds and operations; importing all of them would take a fifth of the time to its first
token.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from volumetric.base.plugins import entry_points_of, load_group, load_named, load_plugins

T = TypeVar("T")


REGISTRIES: dict[str, Registry[Any]] = {}
"""Entry-point group → its registry; of two registries of a group the first."""
_ENGINE = "volumetric."
_REDEFINED = [0]
_FORGET: list[Callable[[], object]] = []


def redefinitions() -> int:
    """Return how often a name outside the engine got another value, as when a notebook's cell runs again.

    Code that is compiled for a name is only valid until this number changes.
    """
    return _REDEFINED[0]


def on_redefinition(forget: Callable[[], object]) -> None:
    """Call a function whenever `redefinitions` changes, to clear a cache."""
    _FORGET.append(forget)


def is_of_engine(module: str) -> bool:
    """Return whether a module is one of this package."""
    return module.startswith(_ENGINE)


def caller_module() -> str:
    """Return the module outside the engine that calls; or an engine's module if only the engine is below it.

    The engine imports its own modules lazily, so the search ends at a module that is being imported.
    """
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not is_of_engine(name) or frame.f_code.co_name == "<module>":
            return name
        frame = frame.f_back
    return _ENGINE


class Registry(MutableMapping[str, T], Generic[T]):
    """Name → value declared under it when its module was imported. `len` and iteration import all modules.

    Names of the engine win; other names may be declared by installed packages, see `base.plugins`.

    Parameters
    ----------
    load : imports the engine's module that declares a name, if it exists; for None, every declaring module; None: there
        are no such modules
    group : entry-point group for names from packages, ``"volumetric.layers"``; None: no packages
    own : initial entries
    spelled : maps all spellings of a name to one
    """

    def __init__(
        self,
        load: Callable[[str | None], object] | None = None,
        *,
        group: str | None = None,
        own: Mapping[str, T] = MappingProxyType({}),
        spelled: Callable[[str], str] = str,
    ) -> None:
        self.group = group
        self.own: Mapping[str, T] = MappingProxyType(dict(own))
        self._load = load or _import_nothing
        self._others = () if group is None else (partial(load_named, group, spelled=spelled), _load_plugins)
        self._spelled = spelled
        self._declared: dict[str, T] = dict(own)
        self._modules: dict[str, str] = {}
        if group is not None:
            REGISTRIES.setdefault(group, self)

    def declare(self, name: str, value: T, module: str) -> None:
        """Set a value that another module than the caller's defines, as a decorator does."""
        name = self._spelled(name)
        changed = name in self._modules and self._declared.get(name) != value
        self._declared[name] = value
        self._modules.pop(name, None)
        if changed:
            _REDEFINED[0] += 1
            for forget in _FORGET:
                forget()
        if not is_of_engine(module):
            self._modules[name] = module

    def module_of(self, name: str) -> str | None:
        """Return the module outside the engine that declared a name; None for other names."""
        return self._modules.get(self._spelled(name)) if self._modules else None

    def is_declared(self, name: str) -> bool:
        """Whether an already imported module declares the name."""
        return self._spelled(name) in self._declared

    def imported_names(self) -> tuple[str, ...]:
        """Return the names declared by already imported modules."""
        return tuple(self._declared)

    def names(self) -> tuple[str, ...]:
        """Return all names, including those of installed packages in the group, which are not imported."""
        if isinstance(self._load, ModuleImporter):
            known = (*self._load.homes, *self._declared)
        else:
            self._load(None)
            known = tuple(self._declared)
        others = () if self.group is None else (point.name for point in entry_points_of(self.group))
        return tuple(dict.fromkeys((*known, *others)))

    def __getitem__(self, name: str) -> T:
        name = self._spelled(name)
        if name not in self._declared:
            for load in (self._load, *self._others):
                load(name)
                if name in self._declared:
                    break
        return self._declared[name]

    def __setitem__(self, name: str, value: T) -> None:
        self.declare(name, value, sys._getframe(1).f_globals.get("__name__", _ENGINE))

    def __delitem__(self, name: str) -> None:
        del self._declared[self._spelled(name)]
        self._modules.pop(self._spelled(name), None)

    def __iter__(self) -> Iterator[str]:
        self._load_all()
        return iter(list(self._declared))

    def __len__(self) -> int:
        self._load_all()
        return len(self._declared)

    def _load_all(self) -> None:
        self._load(None)  # first, so that the engine's own names win
        if self.group is not None:
            load_group(self.group)
            load_plugins()
            self._load(None)  # entries derived from another registry include those of packages


def _import_nothing(name: str | None) -> None:
    """Import nothing."""


def _load_plugins(name: str) -> None:
    load_plugins()


@dataclass(frozen=True, slots=True)
class ModuleImporter:
    """Imports modules of the engine by the names they declare: name → module."""

    homes: Mapping[str, str]

    def __call__(self, name: str | None) -> None:
        """Import the module that declares a name, if it exists; for None, all modules."""
        for module in dict.fromkeys(self.homes.values()) if name is None else filter(None, [self.homes.get(name)]):
            import_module(module)


def modules_of(package: str, names: Mapping[str, str]) -> ModuleImporter:
    """Return the loader of a package's modules: module → the names that it declares, separated by spaces."""
    return ModuleImporter(
        {name: f"{package}.{module}" for module, declared in names.items() for name in declared.split()}
    )


def import_named(place: str) -> Any:
    """Import a module by name, or return the attribute named by ``module:name``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)
