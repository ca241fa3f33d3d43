"""What to write in place of names of other packages that are no layer here: hints of failed imports.

One name for another stands in `volumetric.base.hints`.
"""

from __future__ import annotations

from types import MappingProxyType

TYPE_CHECKING = False  # as in `typing`, whose import would take half the time of `import volumetric`
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

_ACTIVATION = 'an activation is an argument of a layer, as Dense(2, 8, "{0}") or BatchNorm2d(8, activation="{0}")'
_ACTIVATIONS = {
    "ReLU": "relu",
    "LeakyReLU": "leaky_relu",
    "GELU": "gelu",
    "SiLU": "silu",
    "Swish": "silu",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "Activation": "relu",
}
PEER_NAMES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "volumetric": {
            "Sequential": "volumetric.sequential(2, 8, 1) chains widths and layers",
            "Module": "a layer of your own is a volumetric.LayerSpec with emit, see docs/extending.md",
            "nn": "layers are in volumetric.layers, and volumetric.sequential(2, 8, 1) chains them",
            "optim": 'an optimiser is an argument, train(…, optimiser="adam", lr=0.01), or a class of volumetric.train',
            "functional": 'activations and losses are named by texts, as activation="relu" and loss="mse"',
            "tensor": "samples are NumPy arrays or lists",
            "fit": "volumetric.train(network, x, y, epochs=10)",
        },
        "volumetric.layers": {
            "Attention": "did you mean 'MultiHeadAttention'?",
            "BatchNormalization": "BatchNorm1d, BatchNorm2d or BatchNorm3d",
            "AveragePooling2D": "AvgPool2d",
            "GlobalAveragePooling2D": "AdaptiveAvgPool2d(1)",
            "Identity": "leave the layer out; volumetric.builders.around adds a residual path",
            "Input": "the first argument of volumetric.sequential is the shape of a sample",
            "Module": "a layer of your own is a LayerSpec with emit, see docs/extending.md",
            "Add": "Residual(source=…)",
            **{name: _ACTIVATION.format(of) for name, of in _ACTIVATIONS.items()},
        },
    }
)
"""Package → name of another package → what to write here."""
