"""Experts that have no weight, taken out of trained columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.layers import Column, LayerSpec
from volumetric.network import Network, Params
from volumetric.network.weights import WeightStore

Stores: TypeAlias = dict[str, WeightStore]
"""Name below a layer → tensor."""
BY_EXPERT: Final = ("prior.keys", "refine.keys", "mix.bias")
"""Parameters of a column with a row for each expert."""
LEAST: Final = 2
"""Experts that a column keeps: one alone would be that expert, without norm, mixer and head."""


def prune_experts(
    network: Network, params: Mapping[str, WeightStore], experts: Mapping[str, Sequence[int]] | None = None
) -> tuple[Network, Params]:
    """Return a network without experts of its columns, and its weights.

    Which experts a column weighs with ``top_k`` follows from its prior, and so from weights alone: no row changes it.
    With ``prune`` the others take no part in the mixer either, and the network without them makes the same rows up to
    rounding, of as many experts as there are weights. What remaining experts keep of a stream is as before, by their
    new numbers. A column keeps two experts at least. `network` and `params` are not changed.

    Parameters
    ----------
    network : with columns anywhere, also inside of other layers
    params : its weights, in any types; all others keep theirs
    experts : path of a column, as ``"1.0.0.0"`` or ``"1.0.0.0/0"`` → numbers of the experts to take out, whatever they
        do; what the network makes then changes, unless they had no part in it. None: of all columns with ``prune`` and
        a ``top_k`` those without a weight

    Raises
    ------
    SpecError
        No column has experts without a weight; there is no column of a path, or no expert of a number; fewer than two
        would be left; or the layer of a path shares weights with another one (else such layers stay as they are).

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
        layers[coord], own = _without(spec, own, str(coord), to_remove, done)
        stores |= {start + name: store for name, store in own.items()}
    missing = [path for path in to_remove or () if path not in done]
    if missing:
        raise SpecError(f"there is no column at {missing[0]!r}", hint="paths of columns, as '1.0.0.0' or '1.0.0.0/0'")
    if not any(done.values()):
        raise SpecError(
            "no column has experts that can go: those without a weight, of columns with top_k and prune",
            hint="name experts by the path of their column, or train with prune=True",
        )
    smaller = dataclasses.replace(network, layers=layers)
    return smaller, Params({key: stores[key] if key in stores else params[key] for key in smaller.param_specs()})


def _without(
    spec: LayerSpec, own: Stores, path: str, to_remove: Mapping[str, Sequence[int]] | None, done: dict[str, int]
) -> tuple[LayerSpec, Stores]:
    """Return a layer without experts, inside of it too; `done` is how many each column lost, by its path."""
    if isinstance(spec, Column):
        gone = _idle(spec, own) if to_remove is None else _named(spec, path, to_remove.get(path, ()))
        if to_remove is None or path in to_remove:
            done[path] = len(gone)
        if gone:
            spec, own = _smaller(spec, own, gone)
    field, children = spec.children_field, spec.children()
    if field is None:
        return spec, own
    changed_children: list[LayerSpec] = []
    for name, child in children.items():
        start = f"{name}/"
        inner = {key.removeprefix(start): store for key, store in own.items() if key.startswith(start)}
        changed, inner = _without(child, inner, f"{path}/{name}", to_remove, done)
        own = {key: store for key, store in own.items() if not key.startswith(start)}
        own |= {start + key: store for key, store in inner.items()}
        changed_children.append(changed)
    if all(a is b for a, b in zip(changed_children, children.values(), strict=True)):
        return spec, own
    one = isinstance(getattr(spec, field), LayerSpec)
    return dataclasses.replace(spec, **{field: changed_children[0] if one else tuple(changed_children)}), own  # pyright: ignore[reportArgumentType]  (every registered spec is a dataclass)


def _idle(spec: Column, own: Mapping[str, WeightStore]) -> list[int]:
    """Experts without a weight; of these the likeliest stays where fewer than two experts would."""
    if not spec.prune or spec.chosen is None:
        return []
    prior = spec.prior({name: own[name].values() for name in own if name.startswith("prior.")})
    order = np.argsort(-prior, kind="stable").tolist()  # as the column breaks ties
    return sorted(order[max(spec.chosen, LEAST) :])


def _named(spec: Column, path: str, numbers: Sequence[int]) -> list[int]:
    count = len(spec.experts)
    wrong = [i for i in numbers if not 0 <= i < count]
    if wrong:
        raise SpecError(f"the column at {path} has no expert {wrong[0]}", hint=f"experts are 0 … {count - 1}")
    if numbers and count - len(numbers) < LEAST:
        raise SpecError(
            f"the column at {path} would have {count - len(numbers)} of {count} experts left", hint="keep 2"
        )
    return [*numbers]


def _smaller(spec: Column, own: Stores, gone: Sequence[int]) -> tuple[Column, Stores]:
    remaining = [i for i in range(len(spec.experts)) if i not in gone]
    number = {str(old): str(new) for new, old in enumerate(remaining)}
    stores = Stores()
    for name, store in own.items():
        first, _, rest = name.partition("/")
        if name in BY_EXPERT:
            stores[name] = _rows(store, remaining)
        elif not rest or not first.isdigit():
            stores[name] = store
        elif first in number:
            stores[f"{number[first]}/{rest}"] = store
    top_k = None if spec.top_k is None else min(spec.top_k, len(remaining))
    return dataclasses.replace(spec, experts=tuple(spec.experts[i] for i in remaining), top_k=top_k), stores


def _rows(store: WeightStore, numbers: Sequence[int]) -> WeightStore:
    values: Array = np.ascontiguousarray(store.values()[list(numbers)])
    smaller = WeightStore.from_array(values)
    if smaller.scheme != store.scheme:
        smaller.morph(store.scheme)
    return smaller
