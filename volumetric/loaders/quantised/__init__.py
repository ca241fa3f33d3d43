"""Hugging Face checkpoints whose weights are quantised: one file for each method, found by ``quant_method``.

A method says which tensors of the checkpoint make up one matrix, in which scheme that matrix is held, and reads rows of
it (`base.Matrix`). To the rest of the package the checkpoint then has one tensor for each matrix, ``….weight``, as if
it had never been cut up. Codes stay packed wherever one of our schemes holds the very same values; the modules say
where none does, and what becomes of those.
"""

from __future__ import annotations

import importlib
from typing import Final

from volumetric.base.errors import CheckpointError, UnsupportedError, VolumetricError
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised.base import QuantisedSource
from volumetric.loaders.source import TensorSource

_MODULES: Final = {
    "awq": "awq",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed_tensors",
    "fbgemm_fp8": "float8",
    "fp8": "float8",
    "gptq": "gptq",
    "mlx": "mlx",
    "mxfp4": "mxfp4",
}
"""``quant_method`` → module, which has a function ``matrices(config, source) -> base.Reading``."""
_KEYS: Final = ("quantization_config", "compression_config", "quantization")
"""Where configurations describe it: Hugging Face's key, an older one of compressed-tensors, MLX's."""


def opened(config: Config, source: TensorSource) -> tuple[Config, TensorSource]:
    """Return configuration and tensors as if the weights had not been quantised, whatever a method has made of them.

    Raises
    ------
    UnsupportedError
        The method, or a variant of it, is not read here; the message names it.
    CheckpointError
        The tensors are not what the method says.
    """
    section = next((candidate for candidate in map(config.section, _KEYS) if candidate is not None), None)
    if section is None:
        return config, source
    method = _method(config, section)
    if method not in _MODULES:
        raise UnsupportedError(
            f"{section.where}: the weights are quantised by {method}, which is not supported",
            hint=f"supported: {', '.join(_MODULES)}; or open the original weights and give a dtype, or a GGUF file",
        )
    module = importlib.import_module(f"{__name__}.{_MODULES[method]}")
    try:
        reading = module.matrices(section, source)
    except (CheckpointError, UnsupportedError):
        raise
    except VolumetricError as error:  # a scheme or a packed tensor refused the sizes: a fault of the file
        raise CheckpointError(f"{section.where}: {error}", hint=error.hint) from error
    plain = {key: value for key, value in config.values.items() if key not in _KEYS}
    unpacked = QuantisedSource(source, reading)
    return Config(plain, config.where, len(unpacked.entries)), unpacked


def _method(config: Config, section: Config) -> str:
    """Name of the method; MLX's configurations have group size and bits, and no name."""
    method = section.values.get("quant_method")
    if method is None and config.has("quantization"):
        return "mlx"
    if method is None and config.has("compression_config"):
        return "compressed-tensors"
    return str(method).lower()[:40] if method is not None else "a method without a name"
