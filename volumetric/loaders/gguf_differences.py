"""What llama.cpp computes otherwise from a file that says all of a model: what its code for an architecture leaves out.

Found in the sources of llama.cpp (``src/models/*.cpp`` and ``ggml_rope_yarn_corr_dims`` in ``ggml/src/ggml.c``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from volumetric.errors import UnsupportedError
from volumetric.graph.numeric.rope import Rope, inverse_frequencies
from volumetric.layers import ShortConv, SwiGLU
from volumetric.loaders.gguf_windows import attentions
from volumetric.network import Network

_BETA_FAST, _BETA_SLOW = 32.0, 1.0
_LLAMA4_INTERVAL: Final = 4
"""Every so many layers of Llama 4 read the scale of scores by position."""


def check_differences(architecture: str, network: Network) -> None:
    """Raise `UnsupportedError` where llama.cpp would compute something else from a file of this network, or crash."""
    found = _differences(architecture, network)
    if found:
        raise UnsupportedError(
            f"llama.cpp would not compute this model from a GGUF file: {'; '.join(found)}",
            hint="--allow-differences (allow_differences=True) writes it nonetheless: this package reads the file as "
            "the model is",
        )


def _differences(architecture: str, network: Network) -> list[str]:
    layers, found = attentions(network), list[str]()
    windows = sorted({spec.window for spec in layers if spec.window is not None})
    if architecture == "phi3" and windows:
        found.append(
            f"it leaves out the windows of 'phi3', and the model has one of {windows[0]} tokens (--context "
            f"{windows[0]} writes a file for contexts in which that cuts nothing)"
        )
    ramps = [spec.rope for spec in layers if spec.rope is not None and spec.rope.scaling == "yarn"]
    if any(_turns_otherwise(rope, truncate=True) for rope in ramps):
        found.append("it rounds the ends of yarn's ramp to whole pairs, and the model does not (truncate: false)")
    if any(_turns_otherwise(rope, beta_fast=_BETA_FAST, beta_slow=_BETA_SLOW) for rope in ramps):
        found.append(
            f"it computes yarn with beta_fast {_BETA_FAST:g} and beta_slow {_BETA_SLOW:g}, whatever a file says"
        )
    if architecture == "llama4" and len(layers) < _LLAMA4_INTERVAL:
        found.append(f"it ends with an assertion where Llama 4 has less than {_LLAMA4_INTERVAL} layers")
    if architecture == "lfm2" and not any(isinstance(spec, ShortConv) for spec in network.layers.values()):
        found.append("it ends with an assertion where no layer of LFM2 is a convolution")
    activations = {spec.activation for spec in network.layers.values() if isinstance(spec, SwiGLU)}
    if architecture == "modern-bert" and activations - {"gelu", "silu"}:
        found.append(f"it has no gated {', '.join(sorted(activations))} in 'modern-bert'")
    return found


def _turns_otherwise(rope: Rope, **fields: Any) -> bool:
    """Whether other values of these fields change a frequency."""
    return not np.array_equal(inverse_frequencies(rope), inverse_frequencies(replace(rope, **fields)))
