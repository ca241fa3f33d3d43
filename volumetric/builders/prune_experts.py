"""Remove experts without weight from trained columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.layers import Column, LayerSpec
from volumetric.network import Network, Params
from volumetric.network.weight_store import WeightStore

Stores: TypeAlias = dict[str, WeightStore]
"""Name below a layer → tensor."""
BY_EXPERT: Final = ("prior.keys", "refine.keys", "mix.bias")
"""Parameters of a column with a row for each expert."""
LEAST: Final = 2
"""Smallest number of experts of a column: with one, it would be that expert, without norm, mixer and head."""


def prune_experts(
    network: Network, params: Mapping[str, WeightStore], experts: Mapping[str, Sequence[int]] | None = None
) -> tuple[Network, Params]:
    """Remove experts from columns; return the smaller network and its weights.

    The experts that a column with ``top_k`` uses depend on its prior only, so on weights and not on any row. With
    ``prune`` the mixer ignores the other experts too. Without them, a column has as many experts as weights and returns
    the same rows up to rounding. The states of remaining experts do not change, but are numbered anew. A column keeps
    at least two experts. `network` and `params` are not changed.

    Parameters
    ----------
    network : network with columns anywhere, also inside other layers
    params : its weights, in any types; the types do not change
    experts : path of a column, such as ``"1.0.0.0"`` or ``"1.0.0.0/0"`` → numbers of the experts to remove; the output
        changes unless these experts had no weight. None: remove the experts without weight from all columns with
        ``prune`` and ``top_k``

    Raises
    ------
    SpecError
        No column has experts without weight; a path is not a column, or a number not an expert; fewer than two experts
        would remain; or the layer of a given path shares weights with another layer (without `experts`, layers with
        shared weights are skipped).

    Examples
    --------
    >>> from volumetric import initialise
    >>> from volumetric.builders import prune_experts, stack
    >>> from volumetric.layers import Column, LSTM
    >>> cells = tuple(LSTM(input_size=8, hidden_size=8) for _ in range(4))
    >>> network = stack(8, [Column(embed_dim=8, experts=cells, top_k=2, prune=True)])
    >>> smaller, params = prune_experts(network, initialise(network))
    >>> len(next(iter(smaller.layers.values())).experts)
    2
    """
    to_remove = None if experts is None else {path: sorted(set(of)) for path, of in experts.items()}
    tied = {end for link in network.links if link.kind == "shared" for end in (link.source, link.target)}
    layers, stores = dict(network.layers), Stores()
    done: dict[str, int] = {}
    for coord, spec in network.layers.items():
        start = f"{coord}/"
        if coord in tied:
            if any(f"{path}/".startswith(start) for path in to_remove or ()):
                raise SpecError(f"the layer at {coord} shares weights with another one", hint="leave it out")
            continue
        own = {key.removeprefix(start): params[key] for key in params if key.startswith(start)}
        layers[coord], own = _remove_experts(spec, own, str(coord), to_remove, done)
        stores |= {start + name: store for name, store in own.items()}
    missing = [path for path in to_remove or () if path not in done]
    if missing:
        raise SpecError(f"no column at {missing[0]!r}", hint="give paths of columns, such as '1.0.0.0' or '1.0.0.0/0'")
    if not any(done.values()):
        raise SpecError(
            "no experts to remove: no column with top_k and prune has experts without weight",
            hint="give experts={path: numbers}, or train with prune=True",
        )
    smaller = dataclasses.replace(network, layers=layers)
    return smaller, Params({key: stores[key] if key in stores else params[key] for key in smaller.param_specs()})


def _remove_experts(
    spec: LayerSpec, own: Stores, path: str, to_remove: Mapping[str, Sequence[int]] | None, done: dict[str, int]
) -> tuple[LayerSpec, Stores]:
    """Return a layer without the experts, also in nested layers; `done` counts removed experts by path of a column."""
    if isinstance(spec, Column):
        gone = (
            _idle_experts(spec, own) if to_remove is None else _experts_by_request(spec, path, to_remove.get(path, ()))
        )
        if to_remove is None or path in to_remove:
            done[path] = len(gone)
        if gone:
            spec, own = _shrink_column(spec, own, gone)
    field, children = spec.children_field, spec.children()
    if field is None:
        return spec, own
    changed_children: list[LayerSpec] = []
    for name, child in children.items():
        start = f"{name}/"
        inner = {key.removeprefix(start): store for key, store in own.items() if key.startswith(start)}
        changed, inner = _remove_experts(child, inner, f"{path}/{name}", to_remove, done)
        own = {key: store for key, store in own.items() if not key.startswith(start)}
        own |= {start + key: store for key, store in inner.items()}
        changed_children.append(changed)
    if all(a is b for a, b in zip(changed_children, children.values(), strict=True)):
        return spec, own
    one = isinstance(getattr(spec, field), LayerSpec)
    return dataclasses.replace(spec, **{field: changed_children[0] if one else tuple(changed_children)}), own  # pyright: ignore[reportArgumentType]  (every registered spec is a dataclass)


def _idle_experts(spec: Column, own: Mapping[str, WeightStore]) -> list[int]:
    """Experts without weight; if fewer than two would remain, the one with the largest prior stays."""
    if not spec.prune or spec.chosen_count is None:
        return []
    prior = spec.prior({name: own[name].values() for name in own if name.startswith("prior.")})
    order = np.argsort(-prior, kind="stable").tolist()  # the column breaks ties in the same way
    return sorted(order[max(spec.chosen_count, LEAST) :])


def _experts_by_request(spec: Column, path: str, numbers: Sequence[int]) -> list[int]:
    count = len(spec.experts)
    wrong = [i for i in numbers if not 0 <= i < count]
    if wrong:
        raise SpecError(f"the column at {path} has no expert {wrong[0]}", hint=f"experts are numbered 0 … {count - 1}")
    if numbers and count - len(numbers) < LEAST:
        raise SpecError(f"the column at {path} would keep {count - len(numbers)} of {count} experts", hint="keep 2")
    return [*numbers]


def _shrink_column(spec: Column, own: Stores, gone: Sequence[int]) -> tuple[Column, Stores]:
    remaining = [i for i in range(len(spec.experts)) if i not in gone]
    number = {str(old): str(new) for new, old in enumerate(remaining)}
    stores = Stores()
    for name, store in own.items():
        first, _, rest = name.partition("/")
        if name in BY_EXPERT:
            stores[name] = _take_expert_rows(store, remaining)
        elif not rest or not first.isdigit():
            stores[name] = store
        elif first in number:
            stores[f"{number[first]}/{rest}"] = store
    top_k = None if spec.top_k is None else min(spec.top_k, len(remaining))
    return dataclasses.replace(spec, experts=tuple(spec.experts[i] for i in remaining), top_k=top_k), stores


def _take_expert_rows(store: WeightStore, numbers: Sequence[int]) -> WeightStore:
    values: Array = np.ascontiguousarray(store.values()[list(numbers)])
    smaller = WeightStore.from_array(values)
    if smaller.scheme != store.scheme:
        smaller.morph(store.scheme)
    return smaller
