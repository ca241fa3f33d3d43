"""Puts weights by name into a network: a state dict of torch, names of Keras, an ``.npz`` file, our own keys."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.hints import suggestion
from volumetric.detect.module_tree import ModuleNode, build_tree
from volumetric.detect.parameter_fills import ParameterFill, verbatim_fill
from volumetric.detect.single_layers import single_layer
from volumetric.loaders.named_arrays import as_array, read_arrays
from volumetric.loaders.tensor_source import TensorEntry
from volumetric.network import Network, Params, initialise
from volumetric.network.weight_store import WeightStore

_COUNTER: Final = "num_batches_tracked"
"""Tensor of torch's batch norms that matters in training alone."""
_WRAPPERS: Final = re.compile(r"(?:module\.|_orig_mod\.)+")
"""Prefixes of torch's DataParallel and compile."""
_SHOWN: Final = 6


def load_state(
    network: Network,
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    names: Mapping[str, str] | None = None,
    strict: bool = True,
    part: str = "",
) -> Params:
    """Return the parameters of a network, with the values of arrays by name.

    Names may be the network's own keys (``"0.0.0.1/weight"``, see ``network.param_specs()``), in any order. Others,
    such as those of torch's ``state_dict()`` or of Keras, are taken module by module in their order: the first module
    of the arrays is the first layer of the network that has parameters, and so on; parameters and shapes must agree.
    Layouts are converted: kernels of Keras are transposed, gates reordered, torch's ``weight_ih_l0`` renamed.

    Parameters
    ----------
    source : arrays by name, or a file or directory of weights, see `loaders.read_arrays`; tensors of torch count as
        arrays
    names : name in `source` → key of the network, for arrays whose place the order does not tell; only these are loaded
    strict : if false, parameters that `source` lacks are initialised, and arrays that the network lacks are left out
    part : see `loaders.read_arrays`

    Returns
    -------
    Parameters in float32

    Raises
    ------
    CheckpointError
        Parameters are missing or unexpected, or have another shape; the message has their names and shapes. Or the file
        cannot be read.
    SpecError
        A value is no array, or `names` has an unknown name.
    """
    if isinstance(source, Mapping):
        arrays = {str(name): _array_of(name, value) for name, value in source.items()}
    else:
        arrays = read_arrays(source, part=part)
    keys = {key: tuple(spec.shape) for key, spec in network.param_specs().items()}
    if names is not None:
        values = _by_names(arrays, names, keys)
    elif any(name in keys for name in arrays):
        values = arrays
    else:
        values = _by_order(arrays, keys, strict=strict)
    problems = [f"missing {key} {list(shape)}" for key, shape in keys.items() if key not in values] if strict else []
    problems += [f"unexpected {name}" for name in values if name not in keys] if strict else []
    problems += [
        f"{key} has shape {list(values[key].shape)}, expected {list(shape)}"
        for key, shape in keys.items()
        if key in values and values[key].shape != shape
    ]
    if problems:
        raise CheckpointError(
            f"the weights do not fit the network: {_list(problems)}",
            hint="strict=False initialises missing ones and leaves out unexpected ones"
            if all(text.startswith(("missing", "unexpected")) for text in problems)
            else "the network must have the sizes of the one that was saved",
        )
    fresh: Mapping[str, WeightStore] = initialise(network) if any(key not in values for key in keys) else {}
    return Params({key: WeightStore.from_array(_float32(values[key])) if key in values else fresh[key] for key in keys})


def _array_of(name: Any, value: Any) -> Array:
    try:
        return as_array(value.values() if isinstance(value, WeightStore) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise SpecError(
            f"{name!r} is no array of numbers: {str(error)[:120]}",
            hint="pass a mapping from names to arrays, as model.state_dict(); of a checkpoint, the weights alone",
        ) from None


def _float32(array: Array) -> Array:
    return np.ascontiguousarray(array, np.float32)


def _by_names(arrays: Mapping[str, Array], names: Mapping[str, str], keys: Mapping[str, Shape]) -> dict[str, Array]:
    for name, key in names.items():
        if name not in arrays:
            raise SpecError(
                f"names: there is no array {name!r}", hint=suggestion(name, arrays, "see its names", most=3)
            )
        if key not in keys:
            raise SpecError(f"names: the network has no {key!r}", hint=suggestion(key, keys, _list([*keys]), most=3))
    return {key: arrays[name] for name, key in names.items()}


def _by_order(arrays: Mapping[str, Array], keys: Mapping[str, Shape], *, strict: bool) -> dict[str, Array]:
    """Match modules of the arrays with layers of the network, both in order."""
    plain = {_WRAPPERS.sub("", name, count=1) if _WRAPPERS.match(name) else name: a for name, a in arrays.items()}
    theirs = [node for node in _modules(plain) if any(name != _COUNTER for name in node.tensors)]
    ours: dict[str, dict[str, Shape]] = {}
    for key, shape in keys.items():
        path, role = _split(key)
        ours.setdefault(path, {})[role] = shape
    values: dict[str, Array] = {}
    pairs = list(zip(theirs, ours.items(), strict=False))
    if len(theirs) != len(ours) and (strict or len(theirs) < len(pairs)):
        raise _unequal(theirs, ours)
    for node, (path, wanted) in pairs:
        fills = _fills(node, wanted)
        if fills is None:
            raise _unequal(theirs, ours, node.path, path)
        for role, fill in fills.items():
            value = [plain[name] for name in fill.tensors]
            array = value[0] if fill.make is None else fill.make(*(_float32(each) for each in value))
            if array.shape != wanted[role]:
                raise _unequal(theirs, ours, node.path, path)
            values[f"{path}/{role}"] = array
    return values


def _split(key: str) -> tuple[str, str]:
    """Return the layer of a key, and the parameter in it; an LSTM's ``ih.weight`` and ``hh.weight`` are one layer."""
    path, _, role = key.rpartition("/")
    return path, role


def _modules(arrays: Mapping[str, Array]) -> list[ModuleNode]:
    """Return the modules with tensors of their own, in the order of the file."""
    entries = {
        name: TensorEntry(name=name, type=str(a.dtype), shape=tuple(a.shape), start=0, stop=a.nbytes)
        for name, a in arrays.items()
    }
    nodes = [node for node in build_tree(entries).modules() if node.tensors]
    first = {name: i for i, name in enumerate(entries)}
    return sorted(nodes, key=lambda node: min(first[entry.name] for entry in node.tensors.values()))


def _fills(node: ModuleNode, wanted: Mapping[str, Shape]) -> Mapping[str, ParameterFill] | None:
    """Return the fills of a layer from a module; None if they are not for the same parameters."""
    plain = {role: verbatim_fill(entry.name) for role, entry in node.tensors.items() if role != _COUNTER}
    if plain.keys() == wanted.keys() and all(node.tensors[role].shape == wanted[role] for role in wanted):
        return plain
    finding = single_layer(node)
    if finding is not None and finding.fills.keys() == wanted.keys():
        return finding.fills
    return None


def _unequal(
    theirs: list[ModuleNode], ours: Mapping[str, Mapping[str, Shape]], path: str = "", layer: str = ""
) -> CheckpointError:
    def describe(tensors: Mapping[str, Shape]) -> str:
        return ", ".join(f"{name} {list(shape)}" for name, shape in tensors.items()) or "nothing"

    if layer:
        node = next(node for node in theirs if node.path == path)
        has = describe({name: entry.shape for name, entry in node.tensors.items()})
        text = (
            f"module {path or 'at the top'!r} has {has}, but the layer {layer} in its place has {describe(ours[layer])}"
        )
    else:
        total = sum(prod(shape) for tensors in ours.values() for shape in tensors.values())
        text = (
            f"the weights have {len(theirs)} modules ({_list([node.path or 'top' for node in theirs])}), "
            f"the network has {len(ours)} layers with {total:,} parameters ({_list([*ours])})"
        )
    return CheckpointError(
        f"the weights do not fit the network: {text}",
        hint="build the network with the same layers in the same order, or give names={their name: key of the network}",
    )


def _list(texts: list[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more
