"""Tensor names of checkpoints ↔ parameters of networks: rules, the check that all fit, and reading through them."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from volumetric.base._typing import Shape
from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed, Scheme, decode
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network
from volumetric.network.grid import Coord

logger: logging.Logger = logging.getLogger(__name__)

SHOWN = 5
"""Maximum names listed in a report; the rest is counted."""


@dataclass(frozen=True, slots=True)
class FusedRows:
    """Rows ``start … stop-1`` of each of the `heads` equal blocks of a fused tensor.

    Most fused tensors are one block, all queries before all keys; those of GPT-NeoX have a block for each head. If
    `stack` is not 0, the tensor is a stack of so many matrices, such as experts, and rows are counted through all of
    them. Only every `step`-th row is selected.
    """

    start: int
    stop: int
    heads: int = 1
    stack: int = 0
    step: int = 1

    def rows(self, total: int) -> np.ndarray:
        """Row numbers in a tensor of `total` rows."""
        return np.arange(total).reshape(self.heads, -1)[:, self.start : self.stop : self.step].reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """Source of one parameter of a network in a checkpoint, and its layout.

    Attributes
    ----------
    key : parameter of the network, ``"1.0.0.1/q.weight"``
    source : tensor of the checkpoint
    part : the parameter is these rows of a fused tensor (these columns if `transposed`)
    transposed : the matrix, or each matrix of a stack, is stored as ``[in, out]`` (GPT-2's Conv1D)
    interleaved_heads : rows are stored in llama.cpp's order: the rotary halves of each of so many heads alternate
    offset : stored value minus parameter (for families that store gains minus one)
    rows : if not 0, the parameter is a vector and the tensor a matrix of so many rows, such as gains of each head. A
        star in `source` is the number of a row, if each row is a separate tensor; see `numbered_rows`
    decay : the tensor stores ``-exp(parameter)``, which a state-space layer computes from its parameter
    factors : stored rows are the parameter's rows times these factors: number of rows and factor, in order
    """

    key: str
    source: str
    part: FusedRows | None = None
    transposed: bool = False
    interleaved_heads: int | None = None
    offset: float = 0.0
    rows: int = 0
    decay: bool = False
    factors: tuple[tuple[int, float], ...] = ()

    @property
    def verbatim(self) -> bool:
        """Whether rows of the parameter are identical to rows of the tensor."""
        rearranged = self.part or self.transposed or self.interleaved_heads is not None or self.rows
        return not rearranged and not self.decay and self.offset == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBlueprint:
    """Result of a family for a configuration: the network, and the rules that fill it.

    Attributes
    ----------
    ignored : regular expressions of tensors that may exist and are not weights here
    tied : tensor of a tied parameter → tensor of the parameter that it shares
    prefix : prefix of tensor names that some checkpoints omit for all tensors
    context_length : context length in tokens
    hidden : the layer whose rows are the hidden states; later layers are the head. None: there is no head
    pooled : for a text classification encoder: the network that reads pooled hidden states, ``[n, d]``
    pooling : the pooling for it, ``"cls"`` or ``"mean"``
    """

    network: Network
    rules: tuple[NameRule, ...]
    ignored: tuple[str, ...] = ()
    tied: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    context_length: int
    hidden: Coord | None = None
    pooled: ModelBlueprint | None = None
    pooling: Literal["cls", "mean"] = "cls"


def fit_rules(blueprint: ModelBlueprint, source: TensorSource, *, strict: bool = True) -> dict[str, NameRule]:
    """Match a blueprint with a checkpoint.

    Parameters
    ----------
    strict : whether to raise for missing and unexpected tensors; otherwise they are logged. Wrong shapes always raise.

    Returns
    -------
    Parameter key → rule, for all parameters whose tensor exists, without `prefix` if the checkpoint omits it

    Raises
    ------
    CheckpointError
        The message lists the first five problems of each kind and counts the rest.
    """
    rules = rules_as_spelled(source, blueprint)
    present = {rule.key: rule for rule in rules if rule.source in source.entries}
    used = {rule.source for rule in rules}
    # Some checkpoints store a tied tensor twice; `tied.build_for` has compared the two.
    patterns = [*blueprint.ignored, *map(re.escape, blueprint.tied)]
    ignored = re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or "(?!)")
    missing = sorted({rule.source for rule in rules} - source.entries.keys())
    unexpected = [name for name in source.entries if name not in used and not ignored.fullmatch(name)]
    misshapen = [
        f"{name} has shape {list(source.entries[name].shape)}, expected {list(shape)}"
        for name, shape in _stored_shapes(blueprint.network, rules).items()
        if name in source.entries and source.entries[name].shape not in _equal_shapes(shape)
    ]
    problems = _report(missing if strict else [], unexpected if strict else [], misshapen)
    if problems:
        raise CheckpointError(
            f"the tensors do not fit the configuration: {problems}",
            hint=None if misshapen else "strict=False loads what fits",
        )
    if missing or unexpected:
        logger.warning("tensors that do not fit the configuration: %s", _report(missing, unexpected, []))
    return present


def rules_as_spelled(source: TensorSource, blueprint: ModelBlueprint) -> list[NameRule]:
    """Rules of a blueprint, without the optional prefix if no tensor of the checkpoint has it."""
    prefix = blueprint.prefix
    if not prefix or any(name.startswith(prefix) for name in source.entries):
        rules = list(blueprint.rules)
    else:
        rules = [dataclasses.replace(rule, source=rule.source.removeprefix(prefix)) for rule in blueprint.rules]
    return [
        _rule_with_outputs_as_rows(dataclasses.replace(rule, source=_older_name(rule.source, source)), source)
        for rule in rules
    ]


def _rule_with_outputs_as_rows(rule: NameRule, source: TensorSource) -> NameRule:
    """The rule for a quantised checkpoint, whose matrices have outputs as rows and the name weight."""
    name = f"{rule.source}.weight"
    if rule.transposed and rule.source not in source.entries and name in source.entries:
        return dataclasses.replace(rule, source=name, transposed=False)
    return rule


def _older_name(name: str, source: TensorSource) -> str:
    """Name of a tensor in checkpoints with TensorFlow's names gamma and beta for norms."""
    stem, _, kind = name.rpartition(".")
    old = f"{stem}.{ {'weight': 'gamma', 'bias': 'beta'}.get(kind, kind) }"
    return old if name not in source.entries and old in source.entries else name


def _report(missing: list[str], unexpected: list[str], misshapen: list[str]) -> str:
    kinds = {"missing": missing, "unexpected": unexpected, "wrong shape": misshapen}
    return "; ".join(f"{len(names)} {kind}: {_first_names(names)}" for kind, names in kinds.items() if names)


def _first_names(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def stored_rows(rules: list[NameRule]) -> dict[str, int]:
    """Rows of each fused tensor: for all heads, up to the end of the last part."""
    rows: dict[str, int] = {}
    for rule in rules:
        if rule.part:
            rows[rule.source] = max(rows.get(rule.source, 0), rule.part.stop * rule.part.heads)
    return rows


def stacked_shape(rule: NameRule, shape: Shape) -> Shape:
    """Shape of a rule's tensor; `shape` is that of all matrices concatenated along rows, or of a vector of rows."""
    if rule.rows:
        return rule.rows, shape[0] // rule.rows
    stack = rule.part.stack if rule.part else 0
    return (stack, shape[0] // stack, *shape[1:]) if stack else shape


def _equal_shapes(shape: Shape) -> tuple[Shape, ...]:
    """Equivalent shapes of a tensor: llama.cpp drops axes of 1, of a row or of a depthwise kernel."""
    row = (shape[1:],) if len(shape) > 1 and shape[0] == 1 else ()
    kernel = ((shape[0], shape[2]),) if len(shape) == 3 and shape[1] == 1 else ()
    return (shape, *row, *kernel)


def _stored_shapes(network: Network, rules: list[NameRule]) -> dict[str, Shape]:
    """Shape that each tensor of the checkpoint must have."""
    specs, fused = network.param_specs(), stored_rows(rules)
    shapes: dict[str, Shape] = {}
    for rule in rules:
        shape = specs[rule.key].shape
        shape = stacked_shape(rule, (fused.get(rule.source, shape[0]), *shape[1:]))
        shapes[rule.source] = (*shape[:-2], shape[-1], shape[-2]) if rule.transposed else shape
    return shapes


def read_parameter(rule: NameRule, source: TensorSource, shape: Shape) -> Packed:
    """Read one parameter of logical `shape` in its stored scheme, rearranged for the network.

    Rows of quantised tensors are sliced and permuted without decoding; transposition of a quantised tensor decodes it.
    A vector is read as a matrix of one row, a matrix as a kernel ``[channels, 1, taps]``: llama.cpp drops axes of 1.
    """
    if rule.part and rule.part.stack:
        return _read_from_stack(rule, rule.part, source, shape)
    packed = source.packed(rule.source)
    if rule.rows:
        packed = Packed.from_array(_values(packed).reshape(shape))
    if len(packed.shape) == 1 < len(shape):
        packed = packed.slice_rows(0, 1)
    if len(packed.shape) == 2 and len(shape) == 3:
        packed = Packed.from_array(_values(packed).reshape(shape))
    if rule.transposed and len(packed.shape) > 1:
        return _transpose_packed(packed, rule.part)
    if rule.part:
        packed = _take_fused_rows(packed, rule.part)
    if rule.interleaved_heads:
        packed = _take_packed_rows(packed, halves_from_pairs(shape[0], rule.interleaved_heads))
    if rule.decay:
        return _logarithm(packed, rule.source)
    return add_offset(packed, -rule.offset) if rule.offset else packed


def read_scheme(rule: NameRule, source: TensorSource) -> Scheme:
    """Return the scheme of the result of `read_parameter`, without reading."""
    scheme = source.scheme(rule.source)
    turned = rule.transposed and len(source.entries[rule.source].shape) > 1
    decodes = scheme.has_scale and (turned or rule.rows > 0)
    return Scheme.parse("float32") if decodes or rule.offset or rule.decay else scheme


def halves_from_pairs(rows: int, heads: int) -> np.ndarray:
    """Row numbers that undo llama.cpp's order: within a head r0, r_half, r1, … becomes r0, r1, …, r_half, ….

    Its converter makes the two rows of a rotated pair neighbours; here, as in Hugging Face checkpoints, the first
    elements of all pairs come first.
    """
    return np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)


def pairs_from_halves(rows: int, heads: int) -> np.ndarray:
    """Inverse of `halves_from_pairs`."""
    return np.arange(rows).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)


def _values(packed: Packed) -> np.ndarray:
    """Array of the logical shape: codes if they are the values, else float32."""
    if packed.scheme.has_scale:
        return decode(packed)
    return packed.codes().reshape(packed.shape)


def _transpose_packed(packed: Packed, columns: FusedRows | None) -> Packed:
    array = _values(packed)
    if columns:
        array = array[:, columns.rows(array.shape[1])]
    return Packed.from_array(np.ascontiguousarray(array.T))


def _read_from_stack(rule: NameRule, part: FusedRows, source: TensorSource, shape: Shape) -> Packed:
    """Read a part of a stack of matrices or vectors, without reading other matrices of the stack."""
    if len(shape) == 1:
        return Packed.from_array(_values(source.packed(rule.source)).reshape(-1)[part.start : part.stop : part.step])
    if not rule.transposed:
        rows = source.packed_rows(rule.source, part.start, part.stop)
        return rows if part.step == 1 else rows.take_rows(np.arange(0, rows.rows, part.step))
    *_, inner, outer = source.entries[rule.source].shape
    matrix = part.start // outer
    rows = source.packed_rows(rule.source, matrix * inner, (matrix + 1) * inner)
    return _transpose_packed(rows, FusedRows(part.start - matrix * outer, part.stop - matrix * outer, step=part.step))


def _take_fused_rows(packed: Packed, part: FusedRows) -> Packed:
    total, *rest = packed.shape
    if rest and part.heads == 1:
        return packed.slice_rows(part.start, part.stop)
    return _take_packed_rows(packed, part.rows(total))


def _take_packed_rows(packed: Packed, order: np.ndarray) -> Packed:
    if len(packed.shape) == 1:
        return Packed.from_array(_values(packed)[order])
    return packed.take_rows(order)


def add_offset(packed: Packed, offset: float) -> Packed:
    """Return a tensor with `offset` added to each number, in float32."""
    with np.errstate(invalid="ignore"):  # a signalling NaN of a damaged file is detected in later computation
        return Packed.from_array(decode(packed) + np.float32(offset))


def invert_decay(packed: Packed) -> Packed:
    """Return ``-exp`` of each number, in float32: the decay rate of a state from its parameter."""
    return Packed.from_array(-np.exp(decode(packed, np.float64)).astype(np.float32))


def _logarithm(packed: Packed, name: str) -> Packed:
    """Undo `invert_decay`."""
    rates = -decode(packed, np.float64)
    if not (rates > 0).all():
        raise CheckpointError(f"tensor {name!r} contains numbers that are not below 0, but decays must be")
    return Packed.from_array(np.log(rates).astype(np.float32))


def permute_rows(packed: Packed, heads: int) -> Packed:
    """Reorder the rows of a query or key projection to llama.cpp's order, without decoding."""
    return _take_packed_rows(packed, pairs_from_halves(packed.shape[0], heads))
