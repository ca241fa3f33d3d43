"""What a graph becomes before it has addresses: steps whose arguments refer to tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import UnsupportedError
from volumetric.runtime.graph.ops import Graph, Node, Tensor


@dataclass(frozen=True, slots=True)
class Address:
    """A place in a tensor, `offset` bytes from its start."""

    tensor: int
    offset: int = 0


Argument: TypeAlias = "int | float | Address | Operation"


@dataclass(frozen=True, slots=True)
class Operation:
    """The address of another compiled operation, as an argument."""

    name: str
    constants: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStep:
    """One call of a compiled operation.

    Attributes
    ----------
    name, constants : the operation
    arguments : in the order that the operation documents; floats travel as their float32 bits
    reads, writes : tensors
    flat : elements of the flat range that threads share, if each touches its own share of every tensor listed in
        `shared` and nothing else of it; 0 if not
    shared : tensors of that kind
    work : estimated duration on one core, in nanoseconds
    host : a Python function to call instead of an operation
    """

    name: str
    constants: tuple[int, ...] = ()
    arguments: tuple[Argument, ...] = ()
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    flat: int = 0
    shared: tuple[int, ...] = ()
    work: float = 0.0
    host: Callable[..., None] | None = None


@dataclass(slots=True)
class Draft:
    """A graph on its way to a program: collects steps, and the temporary tensors and tables they need.

    Attributes
    ----------
    sizes : bytes of every tensor, the graph's first, then temporary ones
    tables : int64 arrays that steps point to; they live as long as the program
    scratch : bytes that each thread needs for itself
    """

    graph: Graph
    steps: list[GraphStep] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    tables: list[Array] = field(default_factory=list)
    scratch: int = 4096

    def __post_init__(self) -> None:
        """Start with the graph's own tensors."""
        self.sizes = [4 * tensor.size for tensor in self.graph.tensors]

    def tensor(self, i: int) -> Tensor:
        """Return a tensor of the graph."""
        return self.graph.tensors[i]

    def shape(self, i: int) -> Shape:
        """Return its shape."""
        return self.graph.tensors[i].shape

    def temporary(self, size: int) -> int:
        """Return a new tensor of `size` bytes."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def table(self, numbers: Sequence[int]) -> int:
        """Return the address of a table of int64."""
        array = np.array([*numbers, 0], np.int64)
        self.tables.append(array)
        return array.ctypes.data

    def want_scratch(self, size: int) -> None:
        """Make each thread's scratch at least `size` bytes."""
        self.scratch = max(self.scratch, size)

    def add(
        self,
        name: str,
        names: Sequence[str],
        *constants: int,
        reads: Sequence[int],
        writes: Sequence[int],
        work: float,
        flat: int = 0,
        shared: Sequence[int] = (),
        **given: Any,
    ) -> None:
        """Append a step with the arguments `given`, in the order of `names`; each must be there, and no other."""
        if set(names) != set(given):
            raise TypeError(f"{name}: arguments differ from the operation's: {sorted(set(names) ^ set(given))}")
        self.steps.append(
            GraphStep(
                name=name,
                constants=constants,
                arguments=tuple(given[argument] for argument in names),
                reads=tuple(reads),
                writes=tuple(writes),
                flat=flat,
                shared=tuple(shared),
                work=work,
            )
        )


StepRule: TypeAlias = Callable[[Draft, Node], None]
RULES: dict[str, StepRule] = {}
"""Operation of a graph → what appends its steps."""


def rule(*names: str) -> Callable[[StepRule], StepRule]:
    """Register the rule of some operations."""

    def register(function: StepRule) -> StepRule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@rule("reshape")
def view(draft: Draft, node: Node) -> None:
    """A view: both tensors share storage."""


def append_steps(draft: Draft, node: Node) -> None:
    """Append the steps of a node; nothing for one that only makes tensors without elements."""
    if node.op not in RULES:
        raise UnsupportedError(
            f"operation {node.op!r}{f' of {node.where}' if node.where else ''} has no CPU kernel",
            hint="the reference device runs it",
        )
    if node.outputs and not any(prod(draft.shape(i)) for i in node.outputs):
        return
    RULES[node.op](draft, node)


READ_SPEED = 12.0
"""Bytes a core moves in a nanosecond, for estimates."""


def moved(*sizes: int) -> float:
    """Estimated nanoseconds to move tensors of `sizes` bytes."""
    return 20 + sum(sizes) / READ_SPEED
