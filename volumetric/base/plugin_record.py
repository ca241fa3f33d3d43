"""Record of the modules whose parts a saved file uses, so that another process knows what to import.

Opening a file never imports the modules that it names: a file may come from anyone. Parts of installed packages are
imported by their entry points, see `base.plugins`; other modules must be named by whoever opens the file.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final

from volumetric.base.errors import PluginError, SpecError
from volumetric.base.registry import REGISTRIES

KEY: Final = "plugins"
"""Key of the record in files: module → ``{"version": …, "parts": ["layer snake", …]}``."""
MAIN: Final = "__main__"
"""Module of a script or a notebook."""
_GROUPS: Final = {
    "activation": "volumetric.activations",
    "dtype": "volumetric.dtypes",
    "layer": "volumetric.layers",
}
"""Kind of a part → its group of entry points."""


def plugin_record(parts: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the record of those parts (kind and name) that modules outside the engine declare; often empty."""
    record: dict[str, Any] = {}
    for kind, name in sorted(set(parts)):
        registry = REGISTRIES.get(_GROUPS[kind])
        module = None if registry is None else registry.module_of(name)
        if module is None:
            continue
        version = module_version(module)
        entry = record.setdefault(module, {} if version is None else {"version": version})
        entry.setdefault("parts", []).append(f"{kind} {name}")
    return record


def warn_of_main(record: Mapping[str, Any]) -> None:
    """Warn if a file that is being saved uses parts that no other process can import."""
    if MAIN in record:
        parts = ", ".join(record[MAIN]["parts"])
        warnings.warn(
            f"{parts}: defined in this script or notebook, so other processes cannot open the saved model before they "
            "define it, too; move the definition to a file my_parts.py, import it, and save again",
            stacklevel=4,
        )


def module_version(module: str) -> str | None:
    """Return the version of a module's package: its ``__version__``, or that of the installed package of its name."""
    root = module.partition(".")[0]
    for name in (module, root):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            return version
    if module == MAIN:
        return None
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(root)
    except PackageNotFoundError:
        return None


def check_record(record: object, where: str) -> None:
    """Check that all parts of a record are known; warn if a module has another version than when the file was saved.

    Raises
    ------
    PluginError : a part is unknown; the message names its module, and how to import it
    SpecError : it is no record
    """
    if not isinstance(record, Mapping):
        raise SpecError(f"{where}: {KEY} must be an object, got {type(record).__name__}")
    for module, entry in record.items():
        parts = entry.get("parts", []) if isinstance(entry, Mapping) else None
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise SpecError(f"{where}: {KEY}.{module} must have a list of parts")
        version = entry.get("version")
        missing = [part for part in parts if not _is_known(part)]
        if missing:
            raise _missing(module, version, missing, where)
        present = module_version(module) if module in sys.modules else None
        if version is not None and present is not None and version != present:
            warnings.warn(f"{where}: saved with {module} {version}, and {module} is {present} now", stacklevel=2)


def _is_known(part: str) -> bool:
    kind, _, name = part.partition(" ")
    registry = REGISTRIES.get(_GROUPS.get(kind, ""))
    return registry is None or name in registry


def _missing(module: str, version: object, parts: list[str], where: str) -> PluginError:
    what = ", ".join(parts)
    if module == MAIN:
        return PluginError(
            f"{where} uses what a script or notebook defined, and what is not defined here: {what}",
            hint="define it before opening the model; or move it to my_parts.py and save the model again",
        )
    of = f"{module} {version}" if isinstance(version, str) else module
    return PluginError(
        f"{where} uses the plug-in {of}, which is not imported: {what}",
        hint=f'if you trust it: --plugin {module} on the command line, load(…, plugins=["{module}"]) or '
        f"import {module} before in Python",
    )
