"""config.json of Hugging Face models: values by name and type, windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.graph.numeric.activations import Activation

MAX_SIZE: Final = 2**31 - 1
MAX_LAYERS: Final = 4096
"""Maximum of sizes; no model has a tenth of it."""

ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
    "relu_squared": "relu2",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "linear": "linear",
}
"""Names in configurations → activations here. The tanh approximations differ only in the last bits."""


class Config:
    """A parsed config.json whose values are read by name, type and range.

    Parameters
    ----------
    values : the JSON object
    where : file name for messages
    tensors : number of tensors of the checkpoint, if known: a layer has at least one
    keys_read : set to which the name of each read value is added

    All methods raise `CheckpointError` with file and key if a value is missing, of another type or out of range.
    """

    __slots__ = ("keys_read", "tensors", "values", "where")

    def __init__(
        self, values: Mapping[str, Any], where: str, tensors: int | None = None, *, keys_read: set[str] | None = None
    ) -> None:
        self.values: Mapping[str, Any] = values
        self.where: str = where
        self.tensors: int | None = tensors
        self.keys_read: set[str] | None = keys_read

    @property
    def model_type(self) -> str:
        """The family's name."""
        value = self.values.get("model_type")
        if not isinstance(value, str):
            raise CheckpointError(
                f"{self.where}: model_type is missing", hint=("add the name of the family, such as llama")
            )
        return value

    @property
    def family(self) -> str:
        """The name of the family's module, see `family_name`."""
        return family_name(self.model_type)

    def with_values(self, **values: Any) -> Config:
        """Return a copy with these additional values."""
        return Config({**self.values, **values}, self.where, self.tensors, keys_read=self.keys_read)

    def has(self, name: str) -> bool:
        """Whether `name` is present and not null."""
        return self._value(name) is not None

    def integer(self, name: str, default: int | None = None, *, low: int = 1, high: int = MAX_SIZE) -> int:
        """Whole number in ``low … high``; null and absent give `default`, or an error if it is None."""
        value = self._get(name, default)
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(name, value, f"a whole number from {low} to {high}")
        return value

    def number(self, name: str, default: float | None = None, *, low: float = 0.0) -> float:
        """Finite number of at least `low`."""
        value = self._get(name, default)
        if type(value) not in (int, float) or not math.isfinite(value) or value < low:
            raise self._wrong(name, value, f"a number of at least {low:g}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Truth value."""
        value = self._get(name, default)
        if type(value) is not bool:
            raise self._wrong(name, value, "true or false")
        return value

    def activation(self, name: str, default: str | None = None) -> Activation:
        """Activation function."""
        value = self._get(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise self._wrong(name, value, "one of " + ", ".join(ACTIVATIONS))
        return ACTIVATIONS[value]

    def section(self, name: str) -> Config | None:
        """Nested object, or None if absent."""
        value = self._value(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._wrong(name, value, "an object")
        return Config(value, f"{self.where}: {name}")

    def items(self, name: str, length: int) -> Sequence[Any] | None:
        """List of `length` values, or None if absent."""
        value = self._value(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            raise self._wrong(name, value, f"a list of {length} values")
        return value

    def numbers(self, name: str, *, low: float = 0.0) -> tuple[float, ...]:
        """List of finite numbers of at least `low`."""
        value = self._get(name, None)
        if not isinstance(value, list) or len(value) > MAX_SIZE:
            raise self._wrong(name, value, "a list of numbers")
        return tuple(Config({name: one}, self.where).number(name, low=low) for one in value)

    def layers(self, name: str = "num_hidden_layers") -> int:
        """Number of layers. A number above that of the tensors is refused here, before any layer is built."""
        layers = self.integer(name, high=MAX_LAYERS)
        if self.tensors is not None and layers > self.tensors:
            raise CheckpointError(f"{self.where}: {name} is {layers}, but the weights have only {self.tensors} tensors")
        return layers

    def require(self, name: str, *allowed: object) -> None:
        """Raise `UnsupportedError` unless `name` is absent or one of `allowed`; other variants are not supported."""
        value = self._value(name)
        # Arrays, which GGUF metadata may contain, compare element by element.
        if value is not None and (isinstance(value, np.ndarray) or value not in allowed):
            raise UnsupportedError(
                f"{self.where}: {name}={repr(value)[:60]} is not supported", hint=f"supported: {allowed[0]!r}"
            )

    def _value(self, name: str) -> Any:
        if self.keys_read is not None:
            self.keys_read.add(name)
        return self.values.get(name)

    def _get(self, name: str, default: object) -> Any:
        value = self._value(name)
        if value is not None:
            return value
        if default is None:
            raise CheckpointError(f"{self.where}: {name} is missing")
        return default

    def _wrong(self, name: str, value: object, expected: str) -> CheckpointError:
        return CheckpointError(f"{self.where}: {name} is {str(value)[:60]!r}, expected {expected}")


def family_name(model_type: str) -> str:
    """Return the name of a family's module: ``xlm_roberta`` for ``xlm-roberta``, ``gemma3`` for ``gemma3_text``.

    The text part of multimodal models has a separate type, and some types contain hyphens.
    """
    return model_type.removesuffix("_text").replace("-", "_")


def kinds_of_layers(where: str, kinds: Sequence[Any], known: Mapping[str, int | None]) -> list[int | None]:
    """Return the value of each kind in ``layer_types``. Raises `CheckpointError` for unknown kinds."""
    if any(kind not in tuple(known) for kind in kinds):  # a file may contain unhashable values
        raise CheckpointError(f"{where}: layer_types contains other kinds than {', '.join(known)}")
    return [known[kind] for kind in kinds]


def read_windows(config: Config, layers: int, *, switch: bool, full_every: int | None = None) -> list[int | None]:
    """Attention window of each layer, None for full attention.

    Parameters
    ----------
    full_every : without ``layer_types``, every layer of this number has full attention (Gemma)
    switch : windows apply only if ``use_sliding_window`` is true (Qwen, SmolLM3), not whenever given (Mistral)
    """
    if not config.has("sliding_window") or (switch and not config.flag("use_sliding_window", False)):
        return [None] * layers
    window = config.integer("sliding_window")
    kinds = config.items("layer_types", layers)
    if kinds is not None:
        known = {"sliding_attention": window, "full_attention": None}
        return kinds_of_layers(config.where, kinds, known)
    if full_every is not None:
        return [window if (i + 1) % full_every else None for i in range(layers)]
    first = config.integer("max_window_layers", 28, low=0) if switch else 0
    return [window if i >= first else None for i in range(layers)]
