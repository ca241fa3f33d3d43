"""Data: batches in an order that depends only on seed and epoch, so that training can resume at any batch."""

from __future__ import annotations

import inspect
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np

from volumetric.base import config_tables, rng
from volumetric.base._typing import Array
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.base.hints import suggestion
from volumetric.network import INPUT, OUTPUT
from volumetric.train.arrays import Absent, Inputs, Masks, Targets, arrays_of, as_arrays, by_input_name, map_arrays
from volumetric.train.npz_arrays import array_names, is_part, read_npz, rename_arrays
from volumetric.train.problems import Problem
from volumetric.train.table_objects import DataTable, is_table

_HOW: Final = "write one with numpy.savez(path, inputs=…, targets=…)"
_PARTS: Final = ("inputs", "targets", "mask")
_ORDER, _SPLIT = 0, 1  # random streams of the seed of a data set


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Samples that are processed together.

    A sample is one row of the network's input, or a whole sequence of rows: then arrays have one more axis,
    ``[samples, T, …]``. Pad sequences of unequal length at the end and mask the padding, or use batches of one.

    Attributes
    ----------
    inputs : ``[samples, …]``; for a network with several inputs, arrays by input name
    targets : ``[samples, …]``, as the loss expects them; if several outputs have losses, arrays by output name. An
        output without targets in a batch is not computed for it
    mask : weights of the loss's terms, or None; shared by all targets, or by output
    absent : ids of the fabric nodes that are masked from this batch on, while all others are active, or ids by fabric
        path; None: as before
    ports : for inputs, targets and mask converted from ports to rows: port → its first column, and one past its last
    """

    inputs: Inputs
    targets: Targets
    mask: Masks = None
    absent: Absent = None
    ports: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that all are arrays of numbers with the same number of samples, at least one."""
        for name in _PARTS:
            object.__setattr__(self, name, as_arrays(getattr(self, name), name))
        if isinstance(self.targets, Mapping) and not self.targets:
            raise ShapeError("a batch needs targets, got none", hint="pass targets by output")
        counts = {name: len(a) if a.ndim else 0 for name, a in self.arrays.items()}
        sizes = ", ".join(f"{name} {count}" for name, count in counts.items())
        if set(counts.values()) == {0}:
            raise ShapeError(f"there are no samples: {sizes}", hint="the first axis is samples: give at least one")
        if len(set(counts.values())) != 1 or 0 in counts.values():
            raise ShapeError(
                f"a batch needs the same number of samples in inputs, targets and mask, got {sizes}",
                hint="the first axis of each array is samples: one row of targets for each row of inputs",
            )

    def __len__(self) -> int:
        return len(next(iter(self.inputs_by_name.values())))

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays by name, see `arrays_of`."""
        return arrays_of(self.inputs, self.targets, self.mask)

    @property
    def inputs_by_name(self) -> Mapping[str, Array]:
        """Inputs by name."""
        return by_input_name(self.inputs)

    @property
    def features(self) -> Array:
        """The input ``"input"``."""
        return self.inputs_by_name[INPUT]

    def copy(self) -> Batch:
        """Return the batch with arrays of its own."""
        return replace(self, **{name: map_arrays(getattr(self, name), np.copy) for name in _PARTS})


@runtime_checkable
class Data(Protocol):
    """A source of batches."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on; the same each time for the same `epoch`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return facts, as JSON data, that distinguish data of another order or content."""
        ...


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrayData:
    """Arrays in memory, in batches.

    Attributes
    ----------
    inputs, targets, mask : one entry for each sample; arrays by name for several inputs and outputs, see `Batch`
    batch_size : samples in a batch; the last one of an epoch may be smaller
    shuffle : a new order in each epoch, from `seed` and the number of the epoch
    drop_last : skip a smaller last batch
    ports : as of `Batch`
    classes, columns : names of the classes of the targets, and of the columns of the inputs; empty if unknown
    """

    inputs: Inputs
    targets: Targets
    mask: Masks = None
    batch_size: int = 32
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False
    ports: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check arrays and sizes."""
        for name in _PARTS:
            object.__setattr__(self, name, as_arrays(getattr(self, name), name))
        config_tables.check_fields(self)
        if self.batch_size < 1:
            raise SpecError(
                f"batch_size must be at least 1, got {self.batch_size}",
                hint=f"batch_size={len(self)} uses all samples at once",
            )
        Batch(self.inputs, self.targets, self.mask)  # checks that they match
        if self.batches_per_epoch == 0:
            raise SpecError(f"{len(self)} samples do not fill a batch of {self.batch_size}", hint="use drop_last=False")

    def __len__(self) -> int:
        return len(next(iter(by_input_name(self.inputs).values())))

    @property
    def features(self) -> Array:
        """The input ``"input"``."""
        return by_input_name(self.inputs)[INPUT]

    @property
    def answers(self) -> Array:
        """The targets of the only output with targets; raise `SpecError` if several have targets."""
        targets = [*self.targets.values()] if isinstance(self.targets, Mapping) else [self.targets]
        if len(targets) > 1:
            raise SpecError("the samples have targets of several outputs")
        return targets[0]

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays by name, see `arrays_of`."""
        return arrays_of(self.inputs, self.targets, self.mask)

    @property
    def batches_per_epoch(self) -> int:
        """Batches in an epoch."""
        return len(self) // self.batch_size if self.drop_last else -(-len(self) // self.batch_size)

    def order(self, epoch: int) -> Array:
        """Return the sample indices in the order of `epoch`."""
        if not self.shuffle:
            return np.arange(len(self))
        return rng.generator(self.seed, _ORDER, epoch).permutation(len(self))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on."""
        order = self.order(epoch)
        for i in range(start, self.batches_per_epoch):
            yield self.pick(order[i * self.batch_size : (i + 1) * self.batch_size])

    def split(self, fraction: float) -> tuple[ArrayData, ArrayData]:
        """Return training and validation data; `fraction` of the samples, drawn by the seed, are for validation.

        The validation data are not shuffled. Raises `SpecError` if one of the two would be empty.
        """
        count = round(len(self) * fraction) if 0 < fraction < 1 else 0
        if not 0 < count < len(self):
            what = f"leaves {count} of" if 0 < fraction < 1 else "is not a fraction of"
            raise SpecError(
                f"a validation split of {fraction} {what} {len(self)} samples for validation",
                hint="set validation=0.2 to hold out a fifth of the samples, or pass separate data"
                if 0 < round(len(self) * 0.2) < len(self)
                else "these are too few to hold some out: collect more, or leave validation out",
            )
        order = rng.generator(self.seed, _SPLIT).permutation(len(self))
        train, validation = (self.pick(np.sort(part)) for part in (order[count:], order[:count]))
        return (
            replace(self, inputs=train.inputs, targets=train.targets, mask=train.mask),
            replace(
                self,
                inputs=validation.inputs,
                targets=validation.targets,
                mask=validation.mask,
                shuffle=False,
                drop_last=False,
            ),
        )

    def with_features(self, change: Callable[[Array], Array]) -> ArrayData:
        """Return the same data with the input ``"input"`` changed."""
        several = isinstance(self.inputs, Mapping)
        new = change(self.features)
        return replace(self, inputs={**by_input_name(self.inputs), INPUT: new} if several else new)

    def describe(self) -> dict[str, Any]:
        """Return sizes, seed and checksums."""
        sums = {name: checksum(a) for name, a in self.arrays.items()}
        order = {"batch_size": self.batch_size, "shuffle": self.shuffle, "seed": self.seed, "drop_last": self.drop_last}
        return {"kind": "arrays", "samples": len(self), **order, "crc32": sums}

    def pick(self, samples: Array) -> Batch:
        """Return the batch of some samples, by their indices."""
        parts = (map_arrays(of, lambda array: array[samples]) for of in (self.inputs, self.targets, self.mask))
        return Batch(*parts, ports=self.ports)


def checksum(array: Array) -> int:
    """Return the CRC-32 of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


AnyBatch: TypeAlias = "Batch | tuple[Inputs, Targets] | tuple[Inputs, Targets, Masks]"
AnyEpoch: TypeAlias = "Callable[[int], Iterable[AnyBatch]] | Callable[[], Iterable[AnyBatch]]"


@dataclass(frozen=True, slots=True, eq=False)
class StreamData:
    """Batches created on the fly by a function, such as a generator function.

    Attributes
    ----------
    make : called with the number of each epoch; returns its batches, as `Batch` or (inputs, targets[, mask]). To
        support resuming it must return the same batches for the same epoch, so seed random numbers by the epoch.
        Resuming creates and discards the earlier batches.
    """

    make: Callable[[int], Iterable[AnyBatch]]

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on."""
        number = 0
        for number, batch in enumerate(self.make(epoch), start=1):
            if number > start:
                yield batch if isinstance(batch, Batch) else Batch(**_parts(batch))
        if number == 0:
            raise SpecError(f"epoch {epoch} of the data has no batch", hint="return new batches at each call")

    def describe(self) -> dict[str, Any]:
        """Return nothing: the batches of a function are unknown."""
        return {"kind": "stream"}


@dataclass(frozen=True, slots=True, eq=False)
class SplitData:
    """Data whose batches are split.

    Attributes
    ----------
    data : the data to split; starting in the middle of an epoch reads the earlier batches
    cut : splits a batch into parts
    """

    data: Data
    cut: Callable[[Batch], Iterable[Batch]]

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the parts of an epoch from number `start` on."""
        return itertools.islice((piece for batch in self.data.batches(epoch) for piece in self.cut(batch)), start, None)

    def describe(self) -> dict[str, Any]:
        """Return the facts of the original data."""
        return self.data.describe()


def load_npz(
    path: str | Path,
    *,
    inputs: str | Mapping[str, str] = "inputs",
    targets: str | Mapping[str, str] = "targets",
    mask: str | Mapping[str, str] = "mask",
    **options: Any,
) -> ArrayData:
    """Read samples from an ``.npz`` file. `options` go to `ArrayData`.

    Parameters
    ----------
    inputs, targets, mask : name of the array of the input ``"input"``, or of the only output that has a loss. Arrays
        ``inputs.types`` and ``targets.value`` are then read as the input ``"types"`` and the output ``"value"``. The
        names ``input`` and ``target`` are also accepted. Or a mapping of input or output names to array names. The
        mask may be missing

    Raises
    ------
    CheckpointError
        The file cannot be read, lacks an array, or has an array that needs pickle.
    """
    sources = {"inputs": (inputs, INPUT), "targets": (targets, OUTPUT), "mask": (mask, OUTPUT)}
    prefixes = tuple(of for of, _ in sources.values() if isinstance(of, str))
    named_so = {name for of, _ in sources.values() if isinstance(of, Mapping) for name in of.values()}
    plural = {"input": "inputs", "target": "targets"}
    doubles = {one: name for one, name in plural.items() if name in prefixes and one not in {*prefixes, *named_so}}

    def is_wanted(name: str) -> bool:
        return name in named_so or is_part(name, *prefixes, *doubles)

    arrays = rename_arrays(read_npz(path, hint=_HOW, select=is_wanted), doubles)
    samples: dict[str, Any] = {}
    for what, (of, plain) in sources.items():
        names = dict(of) if isinstance(of, Mapping) else _further(arrays, of)
        if isinstance(of, str) and of in arrays:
            if plain in names:
                raise CheckpointError(f"{path} has two arrays for {plain!r}: {of!r} and {names[plain]!r}", hint=_HOW)
            names = {plain: of, **names}
        missing = next((name for name, array in names.items() if array not in arrays), None)
        if missing is not None or (not names and what != "mask"):
            array_name = repr(of) if missing is None else f"{names[missing]!r}, which {what}.{missing} names"
            names_there = array_names(path)
            near = suggestion(of, names_there, "") if isinstance(of, str) else ""
            raise CheckpointError(
                f"{path} has no array {array_name}",
                hint=f'{near + " " if near else ""}it has {", ".join(names_there)}: set {what} = "{names_there[0]}"'
                if names_there
                else "write one with numpy.savez(path, inputs=…, targets=…)",
            )
        chosen = {name: arrays[array] for name, array in names.items()}
        samples[what] = arrays[of] if isinstance(of, str) and [*names.values()] == [of] else chosen or None
    return ArrayData(**samples, **options)


def _further(arrays: Mapping[str, Array], prefix: str) -> dict[str, str]:
    """Input or output → array, for arrays named ``prefix.name``."""
    return {name[len(prefix) + 1 :]: name for name in arrays if name.startswith(f"{prefix}.")}


AnyData: TypeAlias = "Data | Problem | DataTable | tuple[Inputs | Targets | Masks, ...] | str | Path | AnyEpoch"
"""Source of `as_data`: data, a problem, (inputs, targets[, mask]), a path or table, or a function of batches."""


def as_data(source: AnyData) -> Data:
    """Return `source` as `Data`, in batches of the default size unless it has its own.

    Raises
    ------
    SpecError
        `source` has another type, or is an iterator, which can be read only once.
    """
    if isinstance(source, Data):
        return source
    if isinstance(source, Problem):
        x, y, classes, columns = source.inputs, source.targets, source.classes, source.features
        return ArrayData(inputs=x, targets=y, mask=source.mask, classes=classes, columns=columns)
    if isinstance(source, (str, Path)) and Path(source).suffix == ".npz":
        return load_npz(source)
    if isinstance(source, (str, Path)) or is_table(source):
        from volumetric.train.load_samples import load_samples

        return as_data(load_samples(source))
    if isinstance(source, tuple) and len(source) in (2, 3):
        return ArrayData(**_parts(source))
    if callable(source):
        return StreamData(_of_epochs(source))
    raise SpecError(
        f"cannot train on {type(source).__name__}",
        hint="pass (inputs, targets[, mask]), a problem, path or table, or a function that returns an epoch's batches",
    )


def _of_epochs(make: Callable[..., Iterable[AnyBatch]]) -> Callable[[int], Iterable[AnyBatch]]:
    """Return a function of the epoch's number; one without parameters makes the same batches in every epoch."""
    try:
        return make if inspect.signature(make).parameters else lambda epoch: make()
    except ValueError:  # it has no signature
        return make


def _parts(parts: Sequence[Any]) -> dict[str, Any]:
    """Return inputs, targets and an optional mask by name.

    Raises
    ------
    SpecError : the number of parts is not 2 or 3
    """
    if len(parts) not in (2, 3):
        raise SpecError(f"a batch is (inputs, targets) or (inputs, targets, mask), got {len(parts)} parts")
    return dict(zip(_PARTS, parts, strict=False))
