"""Reads the pickled part of torch's files without running anything: it can make plain values and tensors alone.

A pickle is a program for a small stack machine that imports and calls functions. This reader is another machine with
the same instructions (those of Python's ``pickletools``), which imports nothing and calls nothing: it knows a short
list of names, and what each means for a tensor. Any other name is refused with its name. Numbers, texts and tensors are
all that it makes, so memory grows with the bytes of the file, and no length in the file is trusted.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from volumetric.base.errors import CheckpointError
from volumetric.loaders.torch_names import (
    CALLS,
    KNOWN,
    PREFIX,
    STORAGES,
    GlobalName,
    InertValue,
    StorageRef,
    dict_of,
    expect,
    plain_key,
)

MAX_STEPS: Final = 20_000_000
"""Instructions of a pickle; a checkpoint with a thousand tensors has about a hundred thousand."""


_MARK: Final = InertValue()
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
        self._steps: dict[str, Callable[[Any], object]] = {
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
            "FROZENSET": lambda _: self._stack.append({*map(plain_key, self._above_mark())}),
            "DICT": lambda _: self._stack.append(dict_of(self._above_mark())),
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
            "STACK_GLOBAL": lambda _: self._stack.append(
                self._name(".".join(expect(part, str) for part in self._pop(2)))
            ),
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
        expect(self._stack[-1], list).extend(values)

    def _add(self, values: list[Any]) -> None:
        expect(self._stack[-1], set).update(map(plain_key, values))

    def _set_items(self, values: list[Any]) -> None:
        expect(self._stack[-1], dict).update(dict_of(values))

    def _name(self, text: str) -> GlobalName:
        if text not in KNOWN:
            what = (
                "a whole module" if text.startswith(("__main__.", "torch.nn.", "torchvision.")) else "more than tensors"
            )
            raise CheckpointError(
                f"{self._where} needs {text[:120]!r}: it holds {what}, and only tensors are read from a pickle",
                hint="save the weights alone, where the file was made: "
                "torch.save(model.state_dict(), 'weights.pt'), or safetensors.torch.save_file(model.state_dict(), …)",
            )
        return GlobalName(text)

    def _reduce(self) -> None:
        function, arguments = self._pop(2)
        name = expect(function, GlobalName).text
        values = expect(arguments, tuple)
        call = CALLS.get(name)
        if call is None:
            raise CheckpointError(f"{self._where} calls {name}, which cannot be called")
        try:
            self._stack.append(call(*values))
        except CheckpointError as error:
            raise CheckpointError(f"{self._where}: {error}", hint=error.hint) from None

    def _build(self) -> None:
        """Ignore attributes of a dict, such as ``_metadata`` of a state dict, and of values without tensors."""
        (_,) = self._pop(1)
        if not isinstance(self._stack[-1], (dict, InertValue)):
            raise ValueError(f"a {type(self._stack[-1]).__name__} has no attributes")

    def _storage(self, identity: Any) -> StorageRef:
        """Return the storage of a persistent id: ``("storage", class, key, location, count[, view])``."""
        kind, of, key, _, count, *view = expect(identity, tuple)
        name = expect(of, GlobalName).text
        if kind != "storage" or not name.startswith(PREFIX) or any(each is not None for each in view):
            raise ValueError("a persistent id is not that of a storage")
        if type(count) is not int or count < 0:
            raise ValueError("the size of a storage must be a whole number")
        if type(key) not in (str, int):
            raise ValueError("a storage has no key")
        return StorageRef(str(key), STORAGES[name.rpartition(".")[2]], count)
