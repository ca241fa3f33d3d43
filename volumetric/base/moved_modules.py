"""Old paths of modules and names: they work for one version and warn with the new path. Two paths are permanent."""

from __future__ import annotations

import sys
import warnings
from functools import wraps
from importlib import import_module
from importlib.machinery import ModuleSpec
from opcode import opmap
from types import FrameType, MappingProxyType, ModuleType

TYPE_CHECKING = False  # as in `typing`, whose import would take half the time of `import volumetric`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final, TypeVar

    T = TypeVar("T")
    F = TypeVar("F", bound=Callable[..., Any])

_IMPORT_FROM: Final = opmap["IMPORT_FROM"]
MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{
            f"volumetric.{name}": f"volumetric.base.{name}"
            for name in ("atomic", "errors", "progress", "registry", "rng", "plugins")
        },
        **{f"volumetric.{name}": f"volumetric.network.{name}" for name in ("blueprint", "grid", "wiring")},
        "volumetric.train.imported": "volumetric.base.import_by_name",
        "volumetric.train.import_by_name": "volumetric.base.import_by_name",
        "volumetric.train.expressions": "volumetric.graph.traced_tensor",
        "volumetric.tables": "volumetric.base.config_tables",
        "volumetric.weights": "volumetric.network.weight_store",
        "volumetric.builders.fabric": "volumetric.fabric.fabric_tables",
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
        "volumetric.runtime.open": "volumetric.devices.named_devices",
        "volumetric.runtime.reference": "volumetric.devices.reference_device",
        "volumetric.runtime.streams.clocked": "volumetric.clocked.clocked_stream",
        "volumetric.shaders": "volumetric.devices.gpu.shaders",
    }
)
"""Former path of a module or package → its present path."""
STAY: Final = frozenset({"volumetric.errors", "volumetric.rng"})
"""Former paths that are also public paths, and permanent."""
_LAUNCH: Final = "volumetric.devices.gpu.kernels.graph.kernel_launch"
NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "volumetric.devices.cpu.graph.graph_rules.moved": "volumetric.devices.cpu.graph.graph_rules.move_nanoseconds",
        "volumetric.devices.cpu.step_builder.Draft": "volumetric.devices.cpu.step_builder.StepBuilder",
        "volumetric.formula.losses.Term": "volumetric.formula.losses.LossTerm",
        "volumetric.formula.optimisers.Optimiser": "volumetric.formula.optimisers.OptimiserFormula",
        "volumetric.formula.unary_functions.Function": "volumetric.formula.unary_functions.UnaryFormula",
        "volumetric.graph.operations.operation.out": "volumetric.graph.operations.operation.float_output",
        "volumetric.graph.operations.operation.recomputed": "volumetric.graph.operations.operation.vjp_by_recomputing",
        "volumetric.run.streams.stream_chunks.Chunk": "volumetric.run.streams.stream_chunks.StreamChunk",
        **{
            f"{_LAUNCH}.{former}": f"{_LAUNCH}.{present}"
            for former, present in (
                ("Lowered", "LoweredNode"),
                ("Request", "LoweringRequest"),
                ("alone", "single_launch"),
            )
        },
        "volumetric.generate.Event": "volumetric.generate.JobEvent",
        "volumetric.layers.Fabric": "volumetric.fabric.layer.fabric_layer.Fabric",
        "volumetric.layers.Program": "volumetric.program.layer.program_layer.Program",
        "volumetric.loaders.detect_model": "volumetric.detect.detect_model",
        "volumetric.run.Piece": "volumetric.run.SequenceRows",
        "volumetric.run.list_devices": "volumetric.devices.list_devices",
        "volumetric.run.open_device": "volumetric.devices.open_device",
        "volumetric.run.streams.ClockedStream": "volumetric.clocked.clocked_stream.ClockedStream",
    }
)
"""Former name in a package → its present module and name."""


class FormerModules:
    """Finds modules by former paths, of which `present` returns the present ones; None for all other paths."""

    def __init__(self, present: Callable[[str], str | None]) -> None:
        self._present = present

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a spec whose loader returns the module at its present path; None for all other modules."""
        now = self._present(fullname)
        return None if now is None else ModuleSpec(fullname, _AliasLoader(now))  # pyright: ignore[reportArgumentType]  (a loader by its methods)


class _AliasLoader:
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


def _renamed_path(path: str) -> str | None:
    """Return the present path of a renamed module; its table is imported only when a module is not found otherwise."""
    if not path.startswith("volumetric."):
        return None
    from volumetric.base.renamed_modules import present_name

    return present_name(path)


def install_moved_modules() -> None:
    """Make former paths of modules importable.

    Moved packages are found first: under their old path the import system would load their modules a second time.
    Renamed modules are found last.
    """
    if not any(isinstance(finder, FormerModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerModules(new_path))
        sys.meta_path.append(FormerModules(_renamed_path))


def moved_names_getattr(package: str, otherwise: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
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
            module, _, present = NAMES[before].rpartition(".")
            _warn(before, NAMES[before])
            return getattr(import_module(module), present)
        if otherwise is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return otherwise(name)
        except AttributeError:
            if name.startswith("_"):
                raise
            from volumetric.base.errors import UnknownAttributeError, UnknownImportError  # only errors need these
            from volumetric.base.hints import suggestion
            from volumetric.base.peer_names import PEER_NAMES

            known = getattr(sys.modules[package], "__all__", ())
            hint = PEER_NAMES.get(package, {}).get(name) or suggestion(name, known, f"dir({package}) lists all")
            if _is_import(sys._getframe(1)):
                raise UnknownImportError(f"cannot import name {name!r} from {package!r}", hint=hint) from None
            raise UnknownAttributeError(f"module {package!r} has no attribute {name!r}", hint=hint) from None

    return get


def _is_import(frame: FrameType) -> bool:
    """Whether a frame executes ``from package import name``: Python replaces an `AttributeError` there by its own."""
    return frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def renamed_members(constructor: bool = False, /, **members: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that keeps former names of members, with a warning.

    Parameters
    ----------
    constructor : keep the names as arguments, too, which makes a call of the class slower
    members : former name → present name
    """

    def decorate(cls: type[T]) -> type[T]:
        for former, present in members.items():
            setattr(cls, former, property(_forward(f"{cls.__name__}.{former}", present)))
        if constructor:
            cls.__init__ = renamed_parameters(cls.__name__, **members)(cls.__init__)  # pyright: ignore[reportAttributeAccessIssue]
        return cls

    return decorate


def renamed_parameters(name: str, /, **parameters: str) -> Callable[[F], F]:
    """Return a decorator that keeps former names of a function's keyword arguments, with a warning.

    Parameters
    ----------
    name : of the function or class, for the warning
    parameters : former name → present name
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **values: Any) -> Any:
            if values and not values.keys().isdisjoint(parameters):
                for former in parameters.keys() & values.keys():
                    if parameters[former] in values:
                        raise TypeError(f"{name}() got {parameters[former]!r} twice, once as {former!r}")
                    _warn(f"{name}({former}=…)", f"{name}({parameters[former]}=…)")
                    values[parameters[former]] = values.pop(former)
            return function(*args, **values)

        return call  # pyright: ignore[reportReturnType]  (the same signature, and more)

    return decorate


def _forward(before: str, present: str) -> Callable[[Any], Any]:
    """Return the getter of a former member."""

    def get(self: Any) -> Any:
        _warn(before, present)
        return getattr(self, present)

    return get


def _warn(before: str, now: str) -> None:
    text = f"{before} is {now} now; the old name goes with the next version"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
