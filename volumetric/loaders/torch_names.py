"""What the names in torch's pickles mean: dtypes, storages, tensors as views of storages, and plain containers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from volumetric.base._typing import Shape
from volumetric.base.errors import CheckpointError

TORCH_TAGS: Final[dict[str, str]] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
}
"""torch's dtypes → their names in safetensors, which the rest of the package uses."""
STORAGES: Final[dict[str, str]] = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
    "ComplexFloatStorage": "C64",
    "UntypedStorage": "",
}
"""Classes of storages → the type of their elements; an untyped one holds bytes."""


@dataclass(frozen=True, slots=True)
class StorageRef:
    """A storage that tensors view.

    Attributes
    ----------
    key : its name in the file
    tag : type of its elements; empty: bytes
    count : its elements
    """

    key: str
    tag: str
    count: int


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor as a view of a storage: element (i, j, …) is number ``offset + i·strides[0] + j·strides[1] + …``."""

    storage: StorageRef
    tag: str
    offset: int
    shape: Shape
    strides: Shape


@dataclass(frozen=True, slots=True)
class GlobalName:
    """A global that the pickle names, never what it stands for."""

    text: str


class InertValue:
    """A value that no tensor depends on: a device, a NumPy scalar."""


def expect(value: Any, kind: type[Any]) -> Any:
    """Return `value`; raise `ValueError` unless it has exactly this type."""
    if type(value) is not kind:
        raise ValueError(f"expected a {kind.__name__.lstrip('_')}, got a {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    return expect(value, str)


def dict_of(values: list[Any]) -> dict[Any, Any]:
    """Return a dict of keys and values in turn. Raises `ValueError` if one is missing, or a key is no plain value."""
    if len(values) % 2:
        raise ValueError("a dict has a key without a value")
    return dict(zip(map(plain_key, values[::2]), values[1::2], strict=True))


def plain_key(value: Any) -> Any:
    """Return a plain value, or a tuple of plain values; hashing deeper ones can take exponential time."""
    parts = value if type(value) is tuple else (value,)
    if not all(isinstance(part, (int, float, str, bytes, type(None))) for part in parts):
        raise ValueError("a key of a dict is not a plain value")
    return value


def _numbers(value: Any, what: str) -> Shape:
    if not isinstance(value, (tuple, list)) or not all(type(n) is int and 0 <= n < 1 << 62 for n in value):
        raise CheckpointError(f"a tensor's {what} must be whole numbers of 0 or more")
    if len(value) > 32:
        raise CheckpointError(f"a tensor has {len(value)} axes")
    return tuple(value)


def _view(storage: Any, offset: Any, shape: Any, strides: Any, tag: str) -> TensorView:
    storage = expect(storage, StorageRef)
    sizes, steps = _numbers(shape, "sizes"), _numbers(strides, "strides")
    (start,) = _numbers((offset,), "offset")
    if len(sizes) != len(steps):
        raise CheckpointError(f"a tensor of shape {list(sizes)} has strides {list(steps)}")
    return TensorView(storage, tag, start, sizes, steps)


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> TensorView:
    tag = expect(storage, StorageRef).tag
    if not tag:
        raise CheckpointError("a tensor views an untyped storage without a type")
    return _view(storage, offset, shape, strides, tag)


def _rebuild_with_dtype(
    storage: Any, offset: Any, shape: Any, strides: Any, _grad: Any, _hooks: Any, dtype: Any, *_: Any
) -> TensorView:
    name = expect(dtype, GlobalName).text.removeprefix(PREFIX)
    return _view(storage, offset, shape, strides, TORCH_TAGS[name])


def _size(*shape: Any) -> Shape:
    return _numbers(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape, "sizes")


def _ordered(*items: Any) -> dict[Any, Any]:
    """``OrderedDict()``, ``OrderedDict([(key, value), …])``, ``defaultdict(kind, …)``, ``Counter({…})``."""
    for item in items:
        if isinstance(item, dict):
            return dict(item)
        if isinstance(item, (list, tuple)):
            return dict_of([part for pair in item for part in _pair(pair)])
    return {}


def _pair(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError("an item of a dict is not a pair")
    return value


def _set(*values: Any) -> set[Any]:
    return {*map(plain_key, expect(values[0], list))} if values else set()


PREFIX: Final = "torch."
CALLS: Final[dict[str, Callable[..., Any]]] = {
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v3": _rebuild_with_dtype,
    "torch._utils._rebuild_parameter": lambda data, *_: expect(data, TensorView),
    "torch._utils._rebuild_parameter_with_state": lambda data, *_: expect(data, TensorView),
    "torch.Size": _size,
    "torch.device": lambda *_: InertValue(),
    "collections.OrderedDict": _ordered,
    "collections.defaultdict": _ordered,
    "collections.Counter": _ordered,
    "builtins.set": _set,
    "__builtin__.set": _set,
    "_codecs.encode": lambda *_: InertValue(),
    **dict.fromkeys(
        ("numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"),
        lambda *_: InertValue(),
    ),
}
"""Names that a pickle may call → what this reader does instead; NumPy's scalars are numbers beside the weights."""
KNOWN: Final = frozenset(
    {
        *CALLS,
        *(f"torch.{name}" for name in TORCH_TAGS),
        *(f"torch.{name}" for name in STORAGES),
        "torch.storage.UntypedStorage",
        "builtins.dict",
        "builtins.list",
        "builtins.int",
        "builtins.float",
        "torch.float",
        "torch.double",
        "torch.half",
    }
)
