"""Reads the pickled part of torch's files without running anything: it can make plain values and tensors alone.

A pickle is a program for a small stack machine that imports and calls functions. This reader is another machine with
the same instructions (those of Python's ``pickletools``), which imports nothing and calls nothing: it knows a short
list of names, and what each means for a tensor. Any other name is refused with its name. Numbers, texts and tensors are
all that it makes, so memory grows with the bytes of the file, and no length in the file is trusted.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

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
_STORAGES: Final[dict[str, str]] = {
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
MAX_STEPS: Final = 20_000_000
"""Instructions of a pickle; a checkpoint with a thousand tensors has about a hundred thousand."""


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
class _Name:
    """A global that the pickle names, never what it stands for."""

    text: str


class _Inert:
    """A value that no tensor depends on: a device, a NumPy scalar."""


_MARK: Final = _Inert()
_LITERALS: Final = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "FLOAT",
        "BINFLOAT",
    ]
)
"""Instructions that put their argument, a number or a text, on the stack."""


def read_pickle(file: BinaryIO, where: str) -> Any:
    """Read one pickle from the position of `file`, which is then behind it.

    Returns
    -------
    Numbers, texts, bytes, None, and dicts, lists, tuples and sets of them; a tensor is a `TensorView`

    Raises
    ------
    CheckpointError
        The bytes are no pickle, or name something that no file of tensors needs.
    """
    machine = _Machine(where)
    try:
        for steps, (code, argument, _) in enumerate(pickletools.genops(file)):
            if steps > MAX_STEPS:
                raise CheckpointError(f"{where} has more than {MAX_STEPS:,} pickle instructions")
            machine.step(code.name, argument)
        return machine.result()
    except CheckpointError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CheckpointError(
            f"{where} is damaged or was not written by torch.save: {str(error)[:200] or type(error).__name__}",
            hint="download or save the file again",
        ) from None


class _Machine:
    """The stack machine, without imports and calls."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._steps: dict[str, Callable[[Any], None]] = {
            "MARK": lambda _: self._stack.append(_MARK),
            "POP": lambda _: self._stack.pop(),
            "POP_MARK": lambda _: self._above_mark(),
            "DUP": lambda _: self._stack.append(self._stack[-1]),
            "NONE": lambda _: self._stack.append(None),
            "NEWTRUE": lambda _: self._stack.append(True),
            "NEWFALSE": lambda _: self._stack.append(False),
            "EMPTY_DICT": lambda _: self._stack.append({}),
            "EMPTY_LIST": lambda _: self._stack.append([]),
            "EMPTY_TUPLE": lambda _: self._stack.append(()),
            "EMPTY_SET": lambda _: self._stack.append(set()),
            "FROZENSET": lambda _: self._stack.append({*map(_key, self._above_mark())}),
            "DICT": lambda _: self._stack.append(_dict_of(self._above_mark())),
            "LIST": lambda _: self._stack.append(self._above_mark()),
            "TUPLE": lambda _: self._stack.append(tuple(self._above_mark())),
            "TUPLE1": lambda _: self._stack.append(tuple(self._pop(1))),
            "TUPLE2": lambda _: self._stack.append(tuple(self._pop(2))),
            "TUPLE3": lambda _: self._stack.append(tuple(self._pop(3))),
            "APPEND": self._append,
            "APPENDS": lambda _: self._extend(self._above_mark()),
            "ADDITEMS": lambda _: self._add(self._above_mark()),
            "SETITEM": lambda _: self._set_items(self._pop(2)),
            "SETITEMS": lambda _: self._set_items(self._above_mark()),
            "GLOBAL": lambda name: self._stack.append(self._name(name.replace(" ", ".", 1))),
            "STACK_GLOBAL": lambda _: self._stack.append(self._name(".".join(map(_text, self._pop(2))))),
            "REDUCE": lambda _: self._reduce(),
            "NEWOBJ": lambda _: self._reduce(),
            "BUILD": lambda _: self._build(),
            "BINPERSID": lambda _: self._stack.append(self._storage(*self._pop(1))),
            "MEMOIZE": lambda _: self._remember(len(self._memo)),
            **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), self._remember),
            **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda at: self._stack.append(self._memo[at])),
            **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda _: None),
        }

    def step(self, name: str, argument: Any) -> None:
        action = self._steps.get(name)
        if action is not None:
            action(argument)
        elif name in _LITERALS:
            self._stack.append(argument)
        else:
            raise CheckpointError(f"{self._where} has the pickle instruction {name}, which no file of tensors needs")

    def result(self) -> Any:
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            raise ValueError("the pickle does not end in one value")
        return self._stack[0]

    def _pop(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise IndexError("the pickle's stack is empty")
        values = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        if any(value is _MARK for value in values):
            raise ValueError("a mark is no value")
        return values

    def _above_mark(self) -> list[Any]:
        at = next((i for i in range(len(self._stack) - 1, -1, -1) if self._stack[i] is _MARK), None)
        if at is None:
            raise ValueError("the pickle's stack has no mark")
        values = self._stack[at + 1 :]
        del self._stack[at:]
        return values

    def _remember(self, at: int) -> None:
        if self._stack[-1] is _MARK:
            raise ValueError("a mark is no value")
        self._memo[at] = self._stack[-1]

    def _append(self, _: Any) -> None:
        self._extend(self._pop(1))

    def _extend(self, values: list[Any]) -> None:
        _expect(self._stack[-1], list).extend(values)

    def _add(self, values: list[Any]) -> None:
        _expect(self._stack[-1], set).update(map(_key, values))

    def _set_items(self, values: list[Any]) -> None:
        _expect(self._stack[-1], dict).update(_dict_of(values))

    def _name(self, text: str) -> _Name:
        if text not in _KNOWN:
            what = (
                "a whole module" if text.startswith(("__main__.", "torch.nn.", "torchvision.")) else "more than tensors"
            )
            raise CheckpointError(
                f"{self._where} needs {text[:120]!r}: it holds {what}, and only tensors are read from a pickle",
                hint="save the weights alone, where the file was made: "
                "torch.save(model.state_dict(), 'weights.pt'), or safetensors.torch.save_file(model.state_dict(), …)",
            )
        return _Name(text)

    def _reduce(self) -> None:
        function, arguments = self._pop(2)
        name = _expect(function, _Name).text
        values = _expect(arguments, tuple)
        call = _CALLS.get(name)
        if call is None:
            raise CheckpointError(f"{self._where} calls {name}, which cannot be called")
        try:
            self._stack.append(call(*values))
        except CheckpointError as error:
            raise CheckpointError(f"{self._where}: {error}", hint=error.hint) from None

    def _build(self) -> None:
        """Ignore attributes of a dict, such as ``_metadata`` of a state dict, and of values without tensors."""
        (_,) = self._pop(1)
        if not isinstance(self._stack[-1], (dict, _Inert)):
            raise ValueError(f"a {type(self._stack[-1]).__name__} has no attributes")

    def _storage(self, identity: Any) -> StorageRef:
        """Return the storage of a persistent id: ``("storage", class, key, location, count[, view])``."""
        kind, of, key, _, count, *view = _expect(identity, tuple)
        name = _expect(of, _Name).text
        if kind != "storage" or not name.startswith(_PREFIX) or any(each is not None for each in view):
            raise ValueError("a persistent id is not that of a storage")
        if type(count) is not int or count < 0:
            raise ValueError("the size of a storage must be a whole number")
        if type(key) not in (str, int):
            raise ValueError("a storage has no key")
        return StorageRef(str(key), _STORAGES[name.rpartition(".")[2]], count)


def _expect(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise ValueError(f"expected a {kind.__name__.lstrip('_')}, got a {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    return _expect(value, str)


def _dict_of(values: list[Any]) -> dict[Any, Any]:
    if len(values) % 2:
        raise ValueError("a dict has a key without a value")
    return dict(zip(map(_key, values[::2]), values[1::2], strict=True))


def _key(value: Any) -> Any:
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
    storage = _expect(storage, StorageRef)
    sizes, steps = _numbers(shape, "sizes"), _numbers(strides, "strides")
    (start,) = _numbers((offset,), "offset")
    if len(sizes) != len(steps):
        raise CheckpointError(f"a tensor of shape {list(sizes)} has strides {list(steps)}")
    return TensorView(storage, tag, start, sizes, steps)


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> TensorView:
    tag = _expect(storage, StorageRef).tag
    if not tag:
        raise CheckpointError("a tensor views an untyped storage without a type")
    return _view(storage, offset, shape, strides, tag)


def _rebuild_with_dtype(
    storage: Any, offset: Any, shape: Any, strides: Any, _grad: Any, _hooks: Any, dtype: Any, *_: Any
) -> TensorView:
    name = _expect(dtype, _Name).text.removeprefix(_PREFIX)
    return _view(storage, offset, shape, strides, TORCH_TAGS[name])


def _size(*shape: Any) -> Shape:
    return _numbers(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape, "sizes")


def _ordered(*items: Any) -> dict[Any, Any]:
    """``OrderedDict()``, ``OrderedDict([(key, value), …])``, ``defaultdict(kind, …)``, ``Counter({…})``."""
    for item in items:
        if isinstance(item, dict):
            return dict(item)
        if isinstance(item, (list, tuple)):
            return _dict_of([part for pair in item for part in _pair(pair)])
    return {}


def _pair(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError("an item of a dict is not a pair")
    return value


def _set(*values: Any) -> set[Any]:
    return {*map(_key, _expect(values[0], list))} if values else set()


_PREFIX: Final = "torch."
_CALLS: Final[dict[str, Callable[..., Any]]] = {
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v3": _rebuild_with_dtype,
    "torch._utils._rebuild_parameter": lambda data, *_: _expect(data, TensorView),
    "torch._utils._rebuild_parameter_with_state": lambda data, *_: _expect(data, TensorView),
    "torch.Size": _size,
    "torch.device": lambda *_: _Inert(),
    "collections.OrderedDict": _ordered,
    "collections.defaultdict": _ordered,
    "collections.Counter": _ordered,
    "builtins.set": _set,
    "__builtin__.set": _set,
    "_codecs.encode": lambda *_: _Inert(),
    **dict.fromkeys(
        ("numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"),
        lambda *_: _Inert(),
    ),
}
"""Names that a pickle may call → what this reader does instead; NumPy's scalars are numbers beside the weights."""
_KNOWN: Final = frozenset(
    {
        *_CALLS,
        *(f"torch.{name}" for name in TORCH_TAGS),
        *(f"torch.{name}" for name in _STORAGES),
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
