"""Find the faults of `plant_faults.py` that a compiled kernel holds: its Python never runs, so no mark in it would.

A kernel is made of the functions that its code names, and of what those name. They are followed from the operation, or
from the function that Python calls, through Numba's wrappers and through the intrinsics that write LLVM code.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

HOME = "volumetric.devices.cpu.kernels"


def watch(jit: types.ModuleType, faults: list[dict[str, Any]], reached: Callable[[int], None]) -> None:
    """Report the faults of every kernel that the package asks for from here on; `jit` is the module that compiles."""
    by_file: dict[str, list[tuple[int, int]]] = {}
    for fault in faults:
        by_file.setdefault(fault["path"], []).append((fault["statement"], fault["id"]))
    walked = [fault["id"] for fault in faults if fault["module"] == f"{HOME}.walk"]  # it calls every operation

    @cache
    def held(function: Any) -> list[int]:
        found: set[int] = set()
        for path, first, last in spans(function):
            for end, lines in by_file.items():
                if path.endswith(end):
                    found.update(fault for line, fault in lines if first <= line <= last)
        return sorted(found)

    compiled, called = jit.Library.compiled, jit.parts.Part.__call__

    def noting_compiled(self: Any, name: str, *constants: Any) -> Any:
        operation = compiled(self, name, *constants)
        for fault in [*held(operation._pyfunc), *walked]:
            reached(fault)
        return operation

    def noting_call(self: Any, *arguments: Any, **named: Any) -> Any:
        for fault in held(self.py_func):
            reached(fault)
        return called(self, *arguments, **named)

    jit.Library.compiled = noting_compiled  # pyright: ignore[reportAttributeAccessIssue]
    jit.parts.Part.__call__ = noting_call


def spans(function: Any) -> set[tuple[str, int, int]]:
    """File, first and last line of each function at the top of a module that `function` is made of."""
    found: set[tuple[str, int, int]] = set()
    seen: set[types.CodeType] = set()
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if each.__code__ in seen:
            continue
        seen.add(each.__code__)
        first = each.__code__.co_firstlineno
        for begin, end in _tops(each.__code__.co_filename):
            if begin <= first <= end:
                found.add((each.__code__.co_filename, begin, end))
        waiting += _named(each)
    return found


@cache
def _tops(path: str) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    if not Path(path).exists():  # code that another function has written
        return result
    for node in ast.parse(Path(path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            result.append((first, node.end_lineno or node.lineno))
    return result


def _named(function: Any) -> Iterator[Any]:
    """The functions of the package that a function's code names."""
    names = set(_names(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            values = [getattr(value, other, None) for other in names]
        elif isinstance(value, dict):
            values = list(value.values())
        else:
            values = [value]
        for each in values:
            yield from _functions(each)
    for cell in function.__closure__ or ():
        yield from _functions(cell.cell_contents)
    # What makes a kernel for some constants runs as Python, and calls what the kernel itself does not name.
    yield from _functions(function.__globals__.get(function.__qualname__.split(".")[0]))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _functions(value: Any) -> Iterator[Any]:
    """Yield what Numba's wrapper, an intrinsic or a class stands for, if it is of the kernels."""
    if inspect.isclass(value):
        if value.__module__.startswith(HOME):
            for member in vars(value).values():
                yield from _functions(member)
        return
    for attribute in ("py_func", "_pyfunc", "_defn", "__wrapped__", "__func__"):
        value = getattr(value, attribute, value)
    if isinstance(value, types.FunctionType) and value.__module__.startswith(HOME):
        yield value
