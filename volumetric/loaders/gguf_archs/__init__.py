"""Architectures of GGUF files: one module for each, named as ``general.architecture``, with a `GGUFFamily` in FAMILY.

An architecture is found by its name, so adding one is adding a file to this directory, which holds nothing else.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from volumetric.errors import UnsupportedError
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import family_name


@cache
def architectures() -> tuple[str, ...]:
    """Return the names of all architectures, as files spell them, without importing them."""
    return tuple(sorted(_spelled(module.name) for module in pkgutil.iter_modules(__path__)))


def _spelled(module: str) -> str:
    return module.replace("_", "-")


def find(architecture: object, where: str) -> GGUFFamily:
    """Return the table of an architecture.

    Raises
    ------
    UnsupportedError
        There is none.
    """
    if not isinstance(architecture, str) or architecture not in architectures():
        raise UnsupportedError(
            f"{where}: GGUF architecture {architecture!r} is not supported",
            hint=f"supported: {', '.join(architectures())}",
        )
    return importlib.import_module(f"{__name__}.{architecture.replace('-', '_')}").FAMILY


def architecture_of(model_type: str) -> str:
    """Return the architecture that files of a model family have.

    Raises
    ------
    UnsupportedError
        There is none.
    """
    known = {family_name(each): name for name in architectures() for each in find(name, "").families}
    if family_name(model_type) not in known:
        raise UnsupportedError(
            f"family {model_type!r} cannot be written as GGUF", hint=f"supported: {', '.join(sorted(known))}"
        )
    return known[family_name(model_type)]
