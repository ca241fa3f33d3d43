"""Equal parameters of several layers, stored as one tensor so that one operation serves all of these layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.dtypes import Scheme
from volumetric.graph.build import GraphBuilder

_LONG: Final = 1000
"""Total characters of keys from which a stack's name has the number of keys and a digest instead."""


def stack_key(keys: Sequence[str]) -> str:
    """Return the name of the buffer of equal parameters of several layers."""
    name = "+".join(keys)
    if len(name) < _LONG:
        return f"stack/{name}"
    return f"stack/{keys[0]} and {len(keys) - 1} more, {sha256(name.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class ParameterStack:
    """Equal parameters as one tensor ``[n, …]``.

    Attributes
    ----------
    keys : keys of the members, in order
    member : shape of each member in its layer
    transposed : matrices are transposed: products are fastest if the columns of a matrix are outputs
    """

    keys: tuple[str, ...]
    member: Shape
    transposed: bool = True

    @property
    def key(self) -> str:
        """Name of the buffer."""
        return stack_key(self.keys)

    @property
    def shape(self) -> Shape:
        """Shape of the buffer."""
        return (len(self.keys), *(self.member[::-1] if self.transposed else self.member))

    def join(self, value: Callable[[str], Array]) -> Array:
        """Return the content of the buffer; `value` returns a member by key."""
        return np.stack([self._as_buffer(value(key)) for key in self.keys])

    def split_members(self, whole: Array) -> dict[str, Array]:
        """Return the members in the content `whole` of the buffer, each as a separate array."""
        return {key: self._as_buffer(value).copy() for key, value in zip(self.keys, whole, strict=True)}

    def _as_buffer(self, value: Array) -> Array:
        return value.T if self.transposed else value

    def emit_quantised(self, work: GraphBuilder, whole: int, scheme: Scheme) -> int:
        """Emit the stack with each member rounded to `scheme`."""
        if scheme.group is None or len(self.member) < 2:  # a scheme without groups, or a bias: one row per member
            return work.fake_quant(whole, str(scheme))
        rows = work.permute(whole, (0, 2, 1)) if self.transposed else whole
        shape = work.shape(rows)
        rows = work.reshape(rows, (prod(shape[:-1]), shape[-1]))
        quantised = work.reshape(work.fake_quant(rows, str(scheme)), shape)
        return work.permute(quantised, (0, 2, 1)) if self.transposed else quantised

    def emit_member(self, work: GraphBuilder, whole: int, key: str) -> int:
        """Emit a member of the stack."""
        at = self.keys.index(key)
        part = work.part(whole, 0, at, at + 1)
        if self.transposed and len(self.member) > 1:
            part = work.permute(part, (0, *range(len(self.member), 0, -1)))
        return work.reshape(part, self.member)


@dataclass(frozen=True)
class ParameterStacks:
    """The stacks of a store; parameters in no stack have separate buffers."""

    stacks: tuple[ParameterStack, ...] = ()

    @cached_property
    def by_buffer(self) -> dict[str, ParameterStack]:
        """Stacks by the names of their buffers."""
        return {stack.key: stack for stack in self.stacks}

    @cached_property
    def by_member(self) -> dict[str, ParameterStack]:
        """Stacks by the keys of their members."""
        return {key: stack for stack in self.stacks for key in stack.keys}

    def shapes(self, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
        """Return the buffers of parameters and their shapes; `shapes` must have all members of a stack or none."""
        stacks = (self.by_member.get(key) for key in shapes)
        places = (
            (key, shape) if s is None else (s.key, s.shape)
            for s, (key, shape) in zip(stacks, shapes.items(), strict=True)
        )
        return dict(places)

    def write_to(
        self, store: Any, keys: Iterable[str], value: Callable[[str], Array], name: Callable[[str], str] = str
    ) -> None:
        """Write parameters, or values that belong to parameters, into a store, one buffer after the other.

        Parameters
        ----------
        keys : keys of the parameters; all members of a stack or none
        value : returns the array to write for the key of a parameter
        name : returns the name of the buffer for the key of a parameter or of its stack
        """
        for key in keys:
            stack = self.by_member.get(key)
            if stack is None:
                store.write(name(key), value(key))
            elif key == stack.keys[0]:
                store.write(name(stack.key), stack.join(value))

    def get(self, store: Any, keys: Collection[str], name: Callable[[str], str] = str) -> dict[str, Array]:
        """Copy parameters, or values that belong to parameters, back from a store."""
        parted: dict[str, Array] = {}
        for stack in dict.fromkeys(self.by_member[key] for key in keys if key in self.by_member):
            parted |= stack.split_members(store.get(name(stack.key)))
        return {key: parted[key] if key in parted else store.get(name(key)) for key in keys}

    def runs(self, keys: Sequence[str]) -> Iterator[ParameterStack | str]:
        """Split keys into whole stacks and keys that are in no stack."""
        at = 0
        while at < len(keys):
            stack = self.by_member.get(keys[at])
            if stack is None:
                yield keys[at]
                at += 1
            else:
                yield stack
                at += len(stack.keys)
