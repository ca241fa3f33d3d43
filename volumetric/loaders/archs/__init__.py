"""Model families: one module for each, named after its ``model_type``, with everything about that family.

A family is found by its name, so a new family needs only a new file in this directory. The module has

- ``build(config) -> Blueprint``, the network and the names of its tensors, which also serve to recognise weights
  without a configuration;
- ``GGUF``, a `GGUFFamily`, if GGUF files support the family; several families may share one;
- ``UNSEEN``, values that differ between models of the family, change all results, and that no tensor shows; and
- ``evidence(entries, known)``, values that only tensors of this family show, see `detect.values`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from volumetric.base.errors import CheckpointError, UnsupportedError, VolumetricError
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config, family_name
from volumetric.loaders.name_rules import ModelBlueprint


@cache
def families() -> tuple[str, ...]:
    """Return the names of all families, without importing them."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def family_module(family: str) -> ModuleType:
    """Return the module of one of `families`; `name` may have any spelling."""
    return importlib.import_module(f"{__name__}.{family_name(family)}")


def build(config: Config) -> ModelBlueprint:
    """Return the network and the tensor rules that a configuration describes.

    Raises
    ------
    UnsupportedError
        The family is unknown, or the configuration uses an unsupported variant.
    CheckpointError
        The configuration lacks values or contradicts itself.
    """
    if config.section("text_config") is not None:
        raise UnsupportedError(
            f"{config.where}: a multimodal {config.model_type} cannot be built from its configuration alone",
            hint="open its directory to get the text model, or use a text-only checkpoint of the family",
        )
    family = config.family
    if family not in families():
        raise UnsupportedError(
            f"{config.where}: model family {config.model_type!r} is not supported",
            hint="supported: " + ", ".join(families()),
        )
    try:
        return family_module(family).build(config)
    except (UnsupportedError, CheckpointError):
        raise
    except VolumetricError as error:
        # A layer or the network rejected the sizes: for the user this is an error in the file.
        raise CheckpointError(f"{config.where}: {error}", hint=error.hint) from error


def gguf_families() -> dict[str, GGUFFamily]:
    """Return the GGUF form of each family that has one."""
    forms = {family: getattr(family_module(family), "GGUF", None) for family in families()}
    return {family: form for family, form in forms.items() if form is not None}


def gguf_family(architecture: object, where: str) -> GGUFFamily:
    """Return the GGUF form for a ``general.architecture``.

    Raises
    ------
    UnsupportedError
        There is none.
    """
    # Most have the name of their family, which saves importing the others.
    alike = [name for name in families() if _letters(name) == _letters(str(architecture))]
    form = next((getattr(family_module(name), "GGUF", None) for name in alike), None)
    if form is not None and form.architecture == architecture:
        return form
    forms = {form.architecture: form for form in gguf_families().values()}
    if not isinstance(architecture, str) or architecture not in forms:
        raise UnsupportedError(
            f"{where}: GGUF architecture {architecture!r} is not supported",
            hint=f"supported: {', '.join(sorted(forms))}",
        )
    return forms[architecture]


def _letters(name: str) -> str:
    return name.replace("_", "").replace("-", "")


def gguf_family_of(config: Config) -> GGUFFamily:
    """Return the GGUF form of a configuration's family.

    Raises
    ------
    UnsupportedError
        There is none.
    """
    form = getattr(family_module(config.family), "GGUF", None) if config.family in families() else None
    if form is None:
        raise UnsupportedError(
            f"family {config.model_type!r} cannot be written as GGUF", hint=f"supported: {', '.join(gguf_families())}"
        )
    return form
