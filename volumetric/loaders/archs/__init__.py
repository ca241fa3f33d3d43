"""Model families: one module for each ``model_type``, with a function ``build(config) -> Blueprint``.

A family is found by its name, so adding one is adding a file to this directory, which holds nothing else.
"""

from __future__ import annotations

import importlib
import pkgutil

from volumetric.errors import CheckpointError, UnsupportedError, VolumetricError
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint


def families() -> list[str]:
    """Return the names of all families, without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def build(config: Config) -> Blueprint:
    """Return the network and the tensor rules that a configuration describes.

    Raises
    ------
    UnsupportedError
        The family is unknown, or uses a variant that is not built here.
    CheckpointError
        The configuration lacks values or contradicts itself.
    """
    if config.section("text_config") is not None:
        raise UnsupportedError(
            f"{config.where}: a multimodal {config.model_type} is not built from its configuration alone",
            hint="open its directory, which gives the text model, or a text-only checkpoint of the family",
        )
    family = config.family
    if family not in families():
        raise UnsupportedError(
            f"{config.where}: model family {config.model_type!r} is not supported",
            hint="supported: " + ", ".join(families()),
        )
    module = importlib.import_module(f"{__name__}.{family}")
    try:
        return module.build(config)
    except (UnsupportedError, CheckpointError):
        raise
    except VolumetricError as error:
        # A layer or the network refused the sizes: for the user that is a fault of the file.
        raise CheckpointError(f"{config.where}: {error}", hint=error.hint) from error
