"""Mistakes of beginners: what they write, and what the answer must say."""

from __future__ import annotations

import importlib
import pkgutil

from tests.project.mistakes.mistake import Mistake

_OTHERS = ("mistake", "attempt")


def all_mistakes() -> list[Mistake]:
    """Return the mistakes of all modules."""
    modules = (module.name for module in pkgutil.iter_modules(__path__) if module.name not in _OTHERS)
    return [one for name in modules for one in importlib.import_module(f"{__name__}.{name}").MISTAKES]
