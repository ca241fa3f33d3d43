"""Hugging Face checkpoints with quantised weights: one module for each method, found by ``quant_method``.

A method lists the tensors of the checkpoint that form one matrix, gives the scheme of that matrix, and reads rows of it
(`quantised_source.QuantisedMatrix`). The rest of the package sees one tensor for each matrix, ``….weight``, as in an
unquantised checkpoint. Codes stay packed if one of our schemes has exactly the same values; the modules document the
other cases.
"""

from __future__ import annotations

import importlib
from typing import Final

from volumetric.base.errors import CheckpointError, UnsupportedError, VolumetricError
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised.quantised_source import QuantisedSource
from volumetric.loaders.tensor_source import TensorSource

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
"""``quant_method`` → module with a function ``matrices(config, source) -> QuantisedWeights``."""
_KEYS: Final = ("quantization_config", "compression_config", "quantization")
"""Keys of the quantisation settings: Hugging Face's, an older one of compressed-tensors, MLX's."""


def unpack_weights(config: Config, source: TensorSource) -> tuple[Config, TensorSource]:
    """Return configuration and tensors as those of an unquantised checkpoint.

    Raises
    ------
    UnsupportedError
        The method, or a variant of it, is not supported; the message names it.
    CheckpointError
        The tensors do not match the method.
    """
    section = next((candidate for candidate in map(config.section, _KEYS) if candidate is not None), None)
    if section is None:
        return config, source
    method = _method(config, section)
    if method not in _MODULES:
        raise UnsupportedError(
            f"{section.where}: the weights are quantised by {method}, which is not supported",
            hint=f"supported: {', '.join(_MODULES)}; or open the original weights with a dtype, or a GGUF file",
        )
    module = importlib.import_module(f"{__name__}.{_MODULES[method]}")
    try:
        reading = module.matrices(section, source)
    except (CheckpointError, UnsupportedError):
        raise
    except VolumetricError as error:  # a scheme or a packed tensor rejected the sizes: an error in the file
        raise CheckpointError(f"{section.where}: {error}", hint=error.hint) from error
    plain = {key: value for key, value in config.values.items() if key not in _KEYS}
    unpacked = QuantisedSource(source, reading)
    return Config(plain, config.where, len(unpacked.entries)), unpacked


def _method(config: Config, section: Config) -> str:
    """Name of the method; MLX's configurations have group size and bits, but no name."""
    method = section.values.get("quant_method")
    if method is None and config.has("quantization"):
        return "mlx"
    if method is None and config.has("compression_config"):
        return "compressed-tensors"
    return str(method).lower()[:40] if method is not None else "a method without a name"
