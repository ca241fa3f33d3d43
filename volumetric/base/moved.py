"""Old paths of modules and names: they work for one version and warn with the new path. Two paths are permanent."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType

TYPE_CHECKING = False  # as in `typing`, whose import would take half the time of `import volumetric`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final

MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{
            f"volumetric.{name}": f"volumetric.base.{name}"
            for name in ("atomic", "errors", "progress", "registry", "rng", "tables", "plugins")
        },
        **{f"volumetric.{name}": f"volumetric.network.{name}" for name in ("blueprint", "grid", "weights", "wiring")},
        "volumetric.builders.fabric": "volumetric.fabric.tables",
        "volumetric.kernels": "volumetric.devices",
        "volumetric.kernels.cpu": "volumetric.devices.cpu.kernels",
        "volumetric.kernels.gpu": "volumetric.devices.gpu.kernels",
        "volumetric.layers.fabric": "volumetric.fabric.layer",
        "volumetric.layers.program": "volumetric.program.layer",
        "volumetric.loaders.detect": "volumetric.detect",
        "volumetric.runtime": "volumetric.run",
        "volumetric.runtime.clocked": "volumetric.clocked",
        "volumetric.runtime.cpu": "volumetric.devices.cpu",
        "volumetric.runtime.gpu": "volumetric.devices.gpu",
        "volumetric.runtime.open": "volumetric.devices.open",
        "volumetric.runtime.reference": "volumetric.devices.reference",
        "volumetric.runtime.streams.clocked": "volumetric.clocked.stream",
        "volumetric.shaders": "volumetric.devices.gpu.shaders",
    }
)
"""Former path of a module or package → its present path."""
STAY: Final = frozenset({"volumetric.errors", "volumetric.rng"})
"""Former paths that are also public paths, and permanent."""
NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "volumetric.layers.Fabric": "volumetric.fabric.layer.spec",
        "volumetric.layers.Program": "volumetric.program.layer.spec",
        "volumetric.loaders.detect_model": "volumetric.detect",
        "volumetric.run.list_devices": "volumetric.devices",
        "volumetric.run.open_device": "volumetric.devices",
        "volumetric.run.streams.ClockedStream": "volumetric.clocked.stream",
    }
)
"""Former name in a package → the module that now has it."""


class MovedModules:
    """Finds modules by their former paths.

    It comes first on `sys.meta_path`: a package under its old path would load its modules a second time.
    """

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a spec whose loader returns the module at its new path; None for all other modules."""
        now = new_path(fullname)
        return None if now is None else ModuleSpec(fullname, _Alias(now))  # pyright: ignore[reportArgumentType]  (a loader by its methods)


class _Alias:
    """Loads an already imported module under another name."""

    def __init__(self, now: str) -> None:
        self._now = now
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module at its new path and return it; warn about an old path unless the path is permanent."""
        module = import_module(self._now)
        self._spec = module.__spec__
        if spec.name not in STAY:
            _warn(spec.name, self._now)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec; the module has run already."""
        module.__spec__ = self._spec  # the import system replaced it by the spec of the old path


def new_path(path: str) -> str | None:
    """Return the present path of the module formerly at `path`; None if it has not moved."""
    if not path.startswith("volumetric."):
        return None
    parts = path.split(".")
    for count in range(len(parts), 1, -1):
        before = ".".join(parts[:count])
        if before in MODULES:
            return ".".join((MODULES[before], *parts[count:]))
    return None


def install() -> None:
    """Make old paths of modules importable."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())


def names_that_left(package: str, otherwise: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package that resolves the names moved out of it.

    Parameters
    ----------
    otherwise : the package's own `__getattr__`, for all other names
    """

    def get(name: str) -> Any:
        before = f"{package}.{name}"
        if before in MODULES:
            return import_module(before)
        if before in NAMES:
            _warn(before, f"{NAMES[before]}.{name}")
            return getattr(import_module(NAMES[before]), name)
        if otherwise is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return otherwise(name)

    return get


def _warn(before: str, now: str) -> None:
    text = f"{before} is {now} now; the old name goes with the next version"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
