"""WeightStore: one tensor in a numeric scheme, and Params: the stores of a network by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, NDArray

from volumetric.base._typing import Shape
from volumetric.base.errors import ArgumentError, ImmutableError, MissingKeyError, ShapeError
from volumetric.base.hints import suggestion
from volumetric.base.moved_modules import renamed_members
from volumetric.base.progress import byte_size
from volumetric.base.text_table import TextTable
from volumetric.dtypes import Packed, Scheme, decode, encode
from volumetric.network.grid import Coord
from volumetric.network.weight_difference import MorphReport, WeightDifference

_SHOWN = 4
"""Values in the ``repr`` of a weight."""


_SHAPING = ("T", "astype", "flatten", "item", "ravel", "reshape", "squeeze", "swapaxes", "take", "tolist", "transpose")
_SUMMING = ("all", "any", "argmax", "argmin", "cumsum", "max", "mean", "min", "prod", "std", "sum", "trace", "var")
_READS = frozenset({*_SHAPING, *_SUMMING, "argsort", "clip", "diagonal", "dot", "nonzero", "round"})
"""Members of arrays that weights have, too."""


@renamed_members(stored="packed", converted="convert", through="transformed_by", pieces="row_blocks")
class WeightStore(NDArrayOperatorsMixin):
    """One tensor: its stored form, which may be read from a file on demand, and optionally a float32 master.

    It computes as an array of its values: ``np.abs(store)``, ``store[0]``, ``store @ x``.

    Parameters
    ----------
    shape : logical shape
    scheme : scheme of the stored tensor
    source : the packed tensor, or a function that returns it anew at each call
    rows : returns rows ``start:stop`` of `source`, if that is cheaper than the whole
    release : called by `release`; lets the owner of a mapped file drop the pages of this tensor
    """

    __slots__ = ("_master", "_release", "_rows", "_source", "scheme", "shape")

    def __init__(
        self,
        shape: Shape,
        scheme: Scheme,
        source: Packed | Callable[[], Packed],
        *,
        rows: Callable[[int, int], Packed] | None = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        self.shape: tuple[int, ...] = tuple(shape)
        self.scheme: Scheme = scheme
        self._source: Packed | Callable[[], Packed] | None = source
        self._rows = rows
        self._release = release
        self._master: NDArray[np.float32] | None = None

    @classmethod
    def from_packed(cls, packed: Packed) -> WeightStore:
        """Return a store of a packed tensor."""
        return cls(packed.shape, packed.scheme, packed)

    @classmethod
    def from_array(cls, values: NDArray[np.floating]) -> WeightStore:
        """Return a store of a float16, bfloat16, float32 or float64 array without converting it."""
        return cls.from_packed(Packed.from_array(values))

    @property
    def dtype(self) -> str:
        """Name of the numeric type that is stored, with its scheme: ``"float32"``, ``"int4:g32"``."""
        return str(self.scheme)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def numpy(self) -> NDArray[np.float32]:
        """Return the values as an array of float32; writing to it does not change the weight, `assign` does."""
        return np.array(self.values())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the values; NumPy calls this, for example in ``np.asarray(params[key])``."""
        if copy is False:
            raise ValueError("a weight is decoded into a new array: it cannot be an array without a copy")
        return self.values() if dtype is None else self.values().astype(dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Compute with the values: ``np.abs(params[key])``, ``params[key] * 2``."""
        if any(isinstance(out, WeightStore) for out in kwargs.get("out", ())):
            raise ImmutableError("a weight is not changed in place", hint="params[key].assign(array) sets it")
        return getattr(ufunc, method)(*(x.values() if isinstance(x, WeightStore) else x for x in inputs), **kwargs)

    def __getitem__(self, index: Any) -> Any:
        """Return elements, as those of an array of float32."""
        return self.values()[index]

    if not TYPE_CHECKING:  # type checkers should refuse it

        def __setitem__(self, index: object, value: object) -> None:
            raise ImmutableError("a weight is not changed in place", hint="params[key].assign(array) sets all of it")

    def __getattr__(self, name: str) -> Any:
        """Return a member of the array of values, such as ``T``, ``mean`` or ``reshape``; none that writes."""
        if name in _READS:
            return getattr(self.values(), name)
        raise AttributeError(f"a weight has no attribute {name!r}; numpy() returns its values as an array")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a weight without axes")
        return self.shape[0]

    def __bool__(self) -> bool:
        return True  # it is there; the truth of its elements is that of numpy()

    def __eq__(self, other: object) -> bool:
        return self is other  # np.array_equal compares values

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]  (arrays have none, stores do)
        return id(self)

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.shape)) or "scalar"
        return f"<{shape} {self.dtype}: {self._first_values()}>"

    def _first_values(self) -> str:
        """Return the text of the first values; reads one row of a matrix."""
        packed = next(self.row_blocks(1)) if len(self.shape) > 1 and self._source is not None else self.packed()
        first = decode(packed, np.float32).ravel()[:_SHOWN]
        return ", ".join(f"{value:.4g}" for value in first) + (", …" if self.size > len(first) else "")

    @property
    def nbytes(self) -> int:
        """Bytes of the stored form, including scales and offsets; nothing is read."""
        return math.ceil(prod(self.shape) * self.scheme.bits_per_weight(self.shape) / 8)

    @property
    def has_master(self) -> bool:
        """Whether there is a float32 master."""
        return self._master is not None

    def packed(self) -> Packed:
        """Return the tensor in its stored scheme. A tensor in a file is read again and not cached."""
        if self._source is None:
            self._source = encode(self.master(), self.scheme)
        packed = self._source if isinstance(self._source, Packed) else self._source()
        if packed.shape != self.shape:
            raise ShapeError(f"a weight store of shape {self.shape} received a tensor of shape {packed.shape}")
        return packed

    def row_blocks(self, rows: int) -> Iterator[Packed]:
        """Yield the result of `stored` as consecutive tensors of at most `rows` rows.

        A tensor in a file is read, and its pages are released, in chunks if the file allows it.
        """
        if self._rows is None:
            packed = self.packed()
            total = packed.rows
            yield from (packed.slice_rows(at, min(at + rows, total)) for at in range(0, total, rows))
        else:
            total = prod(self.shape[:-1])
            for at in range(0, total, rows):
                yield self._rows(at, min(at + rows, total))
                self.release()

    def values(self) -> NDArray[np.float32]:
        """Return the float32 values of the stored form, without caching them."""
        return decode(self.packed(), np.float32)

    def master(self) -> NDArray[np.float32]:
        """Return the float32 master; decode and keep it if there is none. Do not write to it: use `assign`."""
        if self._master is None:
            self._master = self.values()
            self._master.flags.writeable = False
        return self._master

    def assign(self, value: NDArray[np.float32]) -> None:
        """Set the master to `value`; raise `ShapeError` if it has another shape."""
        if value.shape != self.shape:
            raise ShapeError(f"cannot assign an array of shape {value.shape} to a weight of shape {self.shape}")
        self._master = np.array(value, np.float32)
        self._master.flags.writeable = False
        self._notify_changed()

    def morph(self, scheme: Scheme) -> MorphReport:
        """Convert the stored form to `scheme`, from the master if there is one, else from the stored values.

        The master stays, so that morphing back restores the bits.
        """
        packed, difference = self.convert(scheme)
        self.adopt(packed)
        return difference.report()

    def convert(self, scheme: Scheme) -> tuple[Packed, WeightDifference]:
        """Return the tensor that `morph` would store, and its difference from the original; nothing changes."""
        before = self.values() if self._master is None else self._master
        packed = encode(before, scheme)
        return packed, WeightDifference.between(before, decode(packed, np.float32))

    def adopt(self, packed: Packed) -> None:
        """Replace the stored form by `packed`; the master stays. Raises `ShapeError` if it has another shape."""
        if packed.shape != self.shape:
            raise ShapeError(f"cannot store a tensor of shape {packed.shape} in a weight of shape {self.shape}")
        self.scheme = packed.scheme
        self._notify_changed()
        self._source = packed

    def transformed_by(self, scheme: Scheme, change: Callable[[Packed], Packed]) -> WeightStore:
        """Return a store that applies `change` to the stored form of this one, or to rows of it, at each read."""
        rows = self._rows
        return WeightStore(
            self.shape,
            scheme,
            lambda: change(self.packed()),
            rows=None if rows is None else lambda start, stop: change(rows(start, stop)),
            release=self.release,
        )

    def copy(self) -> WeightStore:
        """Return a store of the same tensor and master; later changes to either do not affect the other."""
        return copy(self)

    def drop_master(self) -> None:
        """Drop the float32 master."""
        self._source = self.packed() if self._source is None else self._source
        self._master = None

    def release(self) -> None:
        """Let the owner of a mapped file free the pages of this tensor; they are read again on demand."""
        if self._release is not None:
            self._release()

    def _notify_changed(self) -> None:
        self._source = None
        self._rows = None
        self._release = None


class Params(Mapping[str, WeightStore]):
    """Weights of a network: ``"z.y.x.slot/name"`` → `WeightStore`, in the network's order.

    A coordinate and a name are a key, too: ``params[(0, 0, 0, 1), "weight"]``. Weights do not change in place; others
    in their stead are ``Params({**params, key: array})``.

    Parameters
    ----------
    stores : key → weight, or an array, which is stored as float32 unless it has another type of floats
    """

    __slots__ = ("_stores",)

    def __init__(self, stores: Mapping[str, WeightStore | ArrayLike]) -> None:
        self._stores: dict[str, WeightStore] = {
            key: of if isinstance(of, WeightStore) else _store_of(key, of) for key, of in stores.items()
        }

    @classmethod
    def of(cls, weights: Params | Mapping[str, WeightStore | ArrayLike]) -> Params:
        """Return `weights` as parameters.

        Raises
        ------
        ArgumentError : they are no mapping of arrays
        """
        if isinstance(weights, Params):
            return weights
        if not isinstance(weights, Mapping):
            raise ArgumentError(
                f"expected weights, got {type(weights).__name__}",
                hint="initialise(network) returns new ones; result.params are those of training",
            )
        return cls(weights)

    def __setitem__(self, key: object, value: object) -> None:
        """Refuse: weights do not change in place."""
        raise ImmutableError(
            "parameters are not changed in place", hint="others in their stead: Params({**params, key: array})"
        )

    def __getitem__(self, key: str | tuple[object, str]) -> WeightStore:
        try:
            return self._stores[_key(key)]
        except KeyError:
            pass
        raise MissingKeyError(f"there is no weight {key!r:.80}", hint=suggestion(key, self._stores, most=3))

    def __contains__(self, key: object) -> bool:
        return _key(key) in self._stores

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the weight of a key, or `default`."""
        return self._stores.get(_key(key), default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def summary(self) -> TextTable:
        """Return the table that ``print(params)`` shows; reads no values."""
        rows = (
            (key, "×".join(map(str, store.shape)) or "scalar", store.dtype, byte_size(store.nbytes))
            for key, store in self._stores.items()
        )
        return TextTable(
            title=repr(self)[1:-1],
            columns=("weight", "shape", "dtype", "size"),
            rows=tuple(rows),
            right=frozenset({"size"}),
        )

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        schemes = self.schemes()
        dtypes = ", ".join(map(str, schemes)) or "no type"
        return f"<Params: {len(self)} weights of {sum(schemes.values()):,} elements, {dtypes}>"

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.summary()._repr_html_()

    def schemes(self) -> dict[Scheme, int]:
        """Return scheme → number of elements stored in it, largest number first."""
        counts: dict[Scheme, int] = {}
        for store in self._stores.values():
            counts[store.scheme] = counts.get(store.scheme, 0) + int(np.prod(store.shape, dtype=np.int64))
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _store_of(key: str, values: ArrayLike) -> WeightStore:
    """Return a store of an array.

    Raises
    ------
    ArgumentError : it is none of numbers
    """
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0, object)
    if array.dtype.kind in "biu":
        array = array.astype(np.float32)
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ArgumentError(f"weight {key!r} is no array of numbers: {type(values).__name__}", hint="pass an array")
    return WeightStore.from_array(array)


def _key(key: object) -> Any:
    """Return the name of a weight; a pair of a coordinate and a name is joined."""
    match key:
        case (place, str() as name):
            return f"{Coord.of(place)}/{name}"
        case _:
            return key
