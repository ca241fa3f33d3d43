"""Steps: a graph after lowering, before addresses are assigned; arguments refer to tensors.

One kind of step and one step builder serve both kinds of graphs. In graphs of fixed shape an argument is the
`TensorAddress` of a tensor; in graphs of open rows it is the tensor's index, its slot: address and row stride are
looked up when the step runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import UnsupportedError
from volumetric.base.moved_modules import moved_names_getattr
from volumetric.base.registry import Registry
from volumetric.devices.cpu.kernels.jit import KernelLibrary
from volumetric.devices.cpu.kernels.run_table import GUARD, GUARD_ARGUMENTS, LOOP, UNLESS
from volumetric.graph.liveness import view_roots
from volumetric.graph.ops import Graph, Node, Tensor

GUARDS = {"guard": GUARD, "unless": UNLESS}
"""Steps whose body the executor runs if a column of weights is not 0 in all rows, or if it is."""
WALKED = {"loop": LOOP, **GUARDS}
"""Those, and the step whose body it runs for each time step."""
BLOCKED = "run_blocked"
"""A step that runs its body on one block of elements after the other."""


@dataclass(frozen=True, slots=True)
class TensorAddress:
    """A location in a tensor, `offset` bytes from its start."""

    tensor: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """The address of another compiled operation, as an argument."""

    name: str
    constants: tuple[str | int, ...]


Argument: TypeAlias = "int | float | TensorAddress | Operation | OperationStep"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OperationStep:
    """One call of a compiled operation.

    Attributes
    ----------
    name, constants : the operation
    arguments : in the documented order of the operation; floats are passed as their float32 bits, another step as its
        address in the table
    reads, writes : tensors
    flat : identifies how threads partition the tensors in `shared`: two steps with the same partition of a tensor need
        no barrier, because each thread accesses only what it wrote itself, or no two threads access the same elements
    shared : tensors of which each thread accesses only its own share
    over : tensors of `reads` with the layout of the result, whose elements are each read before that element of the
        result is written: the result may overwrite them
    work : estimated duration on one core, in nanoseconds
    tail : runs only on the requested rows
    note : format and sizes, for profiles
    body : consecutive steps that it runs
    host : a Python function to call instead of an operation, with an object whose `view` returns the values of the call
    """

    name: str
    constants: tuple[str | int, ...] = ()
    arguments: tuple[Argument, ...] = ()
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    flat: int | str = 0
    shared: tuple[int, ...] = ()
    over: tuple[int, ...] = ()
    work: float = 0.0
    tail: bool = False
    note: str = ""
    body: tuple[OperationStep, ...] = ()
    host: Callable[[Any], None] | None = None

    @property
    def inner(self) -> tuple[OperationStep, ...]:
        """Steps that it runs, which follow it in the table."""
        return (*self.body, *[value for value in self.arguments if type(value) is OperationStep])  # called often

    @property
    def leaves(self) -> tuple[OperationStep, ...]:
        """The steps after which a barrier is possible, in order: itself, or those the executor runs instead."""
        return self.body if self.name in WALKED else (self,)

    @property
    def label(self) -> str:
        """Label in profiles."""
        own = not self.inner or (self.note and self.name not in WALKED)
        return f"{self.name} {self.note}".rstrip() if own else self.inner[0].label

    def operations(self) -> Iterator[tuple[str, tuple[str | int, ...]]]:
        """Operations it needs, by name and constants."""
        if self.host is None and self.name not in WALKED:
            yield self.name, self.constants
        yield from ((value.name, value.constants) for value in self.arguments if isinstance(value, Operation))
        for step in self.inner:
            yield from step.operations()


@dataclass(slots=True)
class SharedStorage:
    """Tensors that share storage: tensor → the tensor that identifies the storage, and byte offset; storage sizes."""

    of: list[int]
    start: list[int]
    sizes: dict[int, int]


@dataclass(slots=True)
class StepBuilder:
    """Step builder: collects the steps of a graph, and the temporary tensors and lists they need.

    Attributes
    ----------
    library : library of its operations
    sizes : bytes of every tensor, or of a row of it if rows are open; the graph's first, then temporary ones
    inputs, outputs : tensors live from before the first step, and until after the last one
    tables : arrays referenced by steps; they live as long as the table
    scratch : bytes of scratch per thread
    batch_invariant : products sum in one order for any number of rows
    shared : aliasing of the graph's tensors; None: views start at the start of their source
    parts : temporary tensor → the tensor it is a part of, and its start there
    """

    graph: Graph
    library: KernelLibrary
    batch_invariant: bool = False
    shared: SharedStorage | None = None
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)
    steps: list[OperationStep] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    tables: list[Array] = field(default_factory=list)
    scratch: int = 4096

    def __post_init__(self) -> None:
        """Start with the graph's own tensors."""
        self.sizes = [4 * tensor.size for tensor in self.graph.tensors]

    @property
    def inputs(self) -> tuple[int, ...]:
        """Inputs of a run."""
        return self.graph.inputs

    @property
    def outputs(self) -> tuple[int, ...]:
        """Outputs of a run."""
        return self.graph.outputs

    def roots(self) -> list[int]:
        """Tensor of the graph → its source if it is a view, else itself."""
        return view_roots(self.graph)

    def tensor(self, i: int) -> Tensor:
        """Return a tensor of the graph."""
        return self.graph.tensors[i]

    def shape(self, i: int) -> Shape:
        """Return its shape."""
        return self.graph.tensors[i].shape

    def temporary(self, size: int) -> int:
        """Return a new tensor of `size` bytes, or of so many per row."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def temporary_slice(self, i: int, start: int, size: int) -> int:
        """Return `size` bytes of a tensor as a separate tensor: steps on it do not affect other parts."""
        part = self.temporary(size)
        self.parts[part] = i, start
        return part

    def lies_in(self, x: int, y: int, start: int) -> bool:
        """Whether tensor x is in y, so many bytes from its start."""
        of = self.shared
        return of is not None and of.of[x] == of.of[y] and of.start[x] == of.start[y] + start

    def table(self, numbers: Sequence[int]) -> int:
        """Return the address of a list of int64."""
        array = np.array([*numbers, 0], np.int64)
        self.tables.append(array)
        return array.ctypes.data

    def want_scratch(self, size: int) -> None:
        """Make each thread's scratch at least `size` bytes."""
        self.scratch = max(self.scratch, size)

    def add(
        self, name: str | Callable[..., None], names: Sequence[str], /, *constants: str | int, **arguments: Any
    ) -> None:
        """Append a step; see `step`."""
        self.steps.append(self.step(name, names, *constants, **arguments))

    def step(
        self,
        name: str | Callable[..., Any],
        names: Sequence[str],
        /,
        *constants: str | int,
        reads: Places,
        writes: Places,
        **values: Any,
    ) -> OperationStep:
        """Return a step with the arguments `values`, in the order of `names`; all must be passed, and no others.

        Values with the name of an attribute of `OperationStep`, and not of an argument, set that attribute.

        Parameters
        ----------
        name : operation in the library; or ``module:function`` of a package: the operation, or its factory from
            `constants`
        reads, writes : tensors, or those that are arguments by their names; None for a missing one
        """
        touched: list[list[int]] = [[], []]
        for tensors, places in zip(touched, (reads, writes), strict=True):
            if isinstance(places, Mapping):
                values |= {key: self.argument(place) for key, place in places.items()}
                places = [p.tensor if isinstance(p, TensorAddress) else p for p in places.values() if p is not None]
            tensors += places
        of_step = {key: values.pop(key) for key in _OF_STEP - set(names) if key in values}
        if set(names) != set(values):
            raise TypeError(f"{name}: arguments differ from the operation's: {sorted(set(names) ^ set(values))}")
        arguments = tuple(values[argument] for argument in names)
        return OperationStep(
            name=name if isinstance(name, str) else f"{name.__module__}:{name.__qualname__}",
            constants=constants,
            arguments=arguments,
            reads=tuple(touched[0]),
            writes=tuple(touched[1]),
            **of_step,
        )

    def add_predicate(self, first: int, weights: int, column: int, *, unless: bool = False, work: float = 0.0) -> None:
        """Run the steps from number `first` on only if some row (or, with `unless`, no row) has a weight in a column.

        Parameters
        ----------
        work : their estimated duration, if they usually run
        """
        name = "unless" if unless else "guard"
        self.nest_steps(name, GUARD_ARGUMENTS, first, reads=(weights,), weights=weights, column=column, work=work)

    def nest_steps(
        self,
        name: str,
        names: Sequence[str],
        first: int,
        *,
        reads: Sequence[int] = (),
        note: str = "",
        **arguments: Any,
    ) -> None:
        """Make steps the body of a step; the table fills in their address and number."""
        body = tuple(self.steps[first:])
        step = self.step(name, names[2:], reads=reads, writes=(), tail=body[0].tail, note=note, body=body, **arguments)
        self.steps[first:] = [step]

    def argument(self, place: int | TensorAddress | None) -> Argument:
        """The argument for a tensor: the address of its start by default; 0 for none."""
        return 0 if place is None else place if isinstance(place, TensorAddress) else TensorAddress(place)


Places: TypeAlias = "Sequence[int] | Mapping[str, int | TensorAddress | None]"

_OF_STEP = {"flat", "shared", "over", "work", "tail", "note", "body"}

StepRule: TypeAlias = Callable[[Any, Node], None]


class LoweringRules(Registry[StepRule]):
    """Operation of a graph → function that appends its steps to a step builder."""

    def __call__(self, *names: str) -> Callable[[StepRule], StepRule]:
        """Register the rule of some operations."""

        def register(function: StepRule) -> StepRule:
            self.update(dict.fromkeys(names, function))
            return function

        return register

    def append(self, draft: StepBuilder, node: Node) -> None:
        """Append the steps of a node.

        Raises
        ------
        UnsupportedError : there is no rule for it
        """
        if node.op not in self:
            raise UnsupportedError(
                f"operation {node.op!r}{f' of {node.where}' if node.where else ''} has no CPU kernel",
                hint="the reference device runs it",
            )
        self[node.op](draft, node)


__getattr__ = moved_names_getattr(__name__)
