"""Import of modules that a user names: plug-ins, and modules of functions named as ``"module:function"``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from volumetric.base.caller_location import caller_location
from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion


def import_function(name: str, home: Path, key: str = "fitness") -> Callable[..., Any]:
    """Return the function named by ``"module:function"``.

    The directories `home` and the current one are put first in ``sys.path``, as for a script, so that the module can
    import modules next to it; worker processes inherit this.

    Parameters
    ----------
    name : module path and name in the module, which may be dotted, as ``"tasks.maze:Maze.score"``
    home : directory of the configuration
    key : entry of the configuration, for messages

    Raises
    ------
    SpecError
        The module or function does not exist, the module cannot be imported, or the object is not callable.
    """
    module, _, attribute = name.partition(":")
    module = module.removesuffix(".py")
    if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise SpecError(
            f"{key} = {name!r} does not name a function",
            hint=f'write {key} = "module:function" for function in module.py',
        )
    value: Any = import_beside(module, home, f"{key} = {name!r}")
    for part in attribute.split("."):
        if not hasattr(value, part):
            known = vars(value) if hasattr(value, "__dict__") else ()
            where = getattr(value, "__file__", None) or module
            raise SpecError(
                f"{key} = {name!r}: {where} has no {part!r}",
                hint=suggestion(part, known, f"define {part} at the top level of the module"),
            )
        value = getattr(value, part)
    if not callable(value) and not callable(getattr(value, "score_all", None)):
        raise SpecError(
            f"{key} = {name!r} must be a function, got {type(value).__name__}",
            hint="name a function, or a problem with score_all",
        )
    return value


_PLUGINS: Final[dict[str, None]] = {}


def plugin_modules() -> tuple[str, ...]:
    """Return the modules that `import_plugins` has imported, for other processes of a run."""
    return tuple(_PLUGINS)


def import_plugins(names: Iterable[str], home: Path | None = None, where: str = "plugins") -> None:
    """Import modules that register parts: layers, activations, losses, ….

    Parameters
    ----------
    names : modules, as ``"my_parts"`` or ``"package.parts"``; or files, as ``"parts/my_parts.py"``
    home : directory searched first, before the current one and the installed packages
    where : begins messages

    Raises
    ------
    SpecError : a module does not exist, or cannot be imported
    """
    if isinstance(names, str):
        names = [names]
    for name in names:
        if not isinstance(name, str) or not name:
            raise SpecError(f"{where}: expected the names of modules, got {name!r:.60}", hint='as ["my_parts"]')
        file = Path(name).expanduser()
        if name.endswith(".py") or len(file.parts) > 1:
            directory, module = (home or Path()) / file.parent, file.stem
        else:
            directory, module = home or Path(), name
        if not all(part.isidentifier() for part in module.split(".")):
            raise SpecError(f"{where}: {name!r} names no module", hint="my_parts, package.parts, or parts/my_parts.py")
        import_beside(module, directory, f"{where}: {name}")
        _PLUGINS[module] = None


def import_beside(module: str, home: Path, where: str) -> Any:
    """Import a module from `home`, the current directory, or the installed packages; `where` begins messages.

    Both directories are put first in ``sys.path``.

    Raises
    ------
    SpecError : the module does not exist or cannot be imported
    """
    places = [str(place) for place in dict.fromkeys((home.absolute(), Path.cwd()))]
    sys.path[:] = [*places, *(place for place in sys.path if place not in places)]
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise SpecError(
                f"{where}: no module named {error.name!r}",
                hint=f"looked for {error.name.replace('.', '/')}.py in {' and '.join(places)}, and in the "
                "installed packages",
            ) from None
        raise SpecError(
            f"{where}: {module} needs {error.name!r}, which is not installed", hint=f"install {error.name}"
        ) from error
    except Exception as error:
        if isinstance(error, SyntaxError):
            line = f" (line {error.lineno})"
        else:
            place = caller_location(error)
            line = "" if place is None else f" ({place})"
        message = error.msg if isinstance(error, SyntaxError) else error
        raise SpecError(
            f"{where}: {module} cannot be imported: {type(error).__name__}: {message}{line}",
            hint="run the module directly to see the full error",
        ) from error
