"""The checkpoint format of this package: network.json has the structure, weights.safetensors the exact weights.

Tensors of plain numeric types are stored under their keys, readable by any program. A tensor in another scheme is
stored as its packed parts: ``key`` holds the 32-bit words, ``key:scales`` and ``key:offsets`` the rest, and the file's
metadata name scheme and logical shape. The bytes depend on network and weights alone. The metadata also hold the CRC-32
of the structure and of every tensor; a tensor is checked when it is first read. A head that classifies pooled hidden
states is a separate network in head.json and head.safetensors, in the same format. If the network runs tick by tick,
clocked.json describes how.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError, PluginError, SpecError, VolumetricError
from volumetric.base.plugin_record import KEY as PLUGINS
from volumetric.base.plugin_record import check_record, plugin_record, warn_of_main
from volumetric.clocked import Clocked
from volumetric.dtypes import Packed, Scheme
from volumetric.loaders.directory import new_directory
from volumetric.loaders.json_file import read_bytes
from volumetric.loaders.model_location import NATIVE_NAME
from volumetric.loaders.native_facts import NativeFacts, read_facts
from volumetric.loaders.safetensors import SafetensorsFile
from volumetric.loaders.safetensors_write import TensorOut, tag_of, write_safetensors
from volumetric.loaders.sentence_modules import PooledHead
from volumetric.loaders.target_schemes import convert, target_schemes
from volumetric.network import Network, Params, check_params
from volumetric.network.network_json import parts_of
from volumetric.network.weight_store import WeightStore

WEIGHTS_NAME: Final = "weights.safetensors"
CLOCKED_NAME: Final = "clocked.json"
HEAD_NAME: Final = "head.json"
HEAD_WEIGHTS_NAME: Final = "head.safetensors"
METADATA_KEY: Final = "volumetric"
VERSION: Final = 1
MAX_NETWORK_BYTES: Final = 100_000_000
SCALES, OFFSETS = ":scales", ":offsets"


def save_native(
    directory: str | Path,
    network: Network,
    params: Mapping[str, WeightStore],
    *,
    facts: NativeFacts | None = None,
    files: Mapping[str, bytes] | None = None,
    head: PooledHead | None = None,
    clocked: Clocked | None = None,
) -> None:
    """Write a checkpoint. The directory is replaced atomically.

    Parameters
    ----------
    directory : new, empty, or an existing checkpoint, which is replaced
    files : further files, name → content: tokenizer, chat template, …
    head : network that classifies pooled hidden states
    clocked : how the network runs tick by tick

    Raises
    ------
    CheckpointError
        The parameters do not fit the network, or the directory cannot be written.
    SpecError
        `clocked` is for another network.
    """
    if clocked is not None and clocked.network != network:
        raise SpecError("clocked is for another network", hint="give Clocked(network=…) with the network to save")
    check_params(network, params)
    with new_directory(directory, NATIVE_NAME) as home:
        for name, content in sorted((files or {}).items()):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(home / name, content)
        about = facts or NativeFacts()
        if head is not None:
            check_params(head.network, head.params)
            about = dataclasses.replace(about, pooling=head.pooling)
            _write_checkpoint(home / HEAD_NAME, home / HEAD_WEIGHTS_NAME, head.network, head.params, NativeFacts())
        if clocked is not None:
            write_atomic(home / CLOCKED_NAME, clocked.to_json(network=False).encode())
        _write_checkpoint(home / NATIVE_NAME, home / WEIGHTS_NAME, network, params, about)


def _write_checkpoint(
    structure_path: Path, weights_path: Path, network: Network, params: Mapping[str, WeightStore], facts: NativeFacts
) -> None:
    """Write a network and its weights, each with a checksum that identifies the other."""
    tensors, schemes = _tensors(params)
    structure = network.to_json().encode()
    record = plugin_record(("dtype", store.scheme.dtype.name) for store in params.values())
    warn_of_main(plugin_record(parts_of(network)) | record)
    about = {
        "version": VERSION,
        **facts.to_json(),
        **({PLUGINS: record} if record else {}),
        "tensors": schemes,
        "network": _hex_crc(zlib.crc32(structure)),
    }

    def sealed(sums: Mapping[str, int]) -> dict[str, str]:
        checked = about | {"crc32": {name: _hex_crc(crc) for name, crc in sums.items()}}
        return {METADATA_KEY: json.dumps(checked, separators=(",", ":"), sort_keys=True)}

    write_safetensors(weights_path, tensors, sealed)
    write_atomic(structure_path, structure)


def _hex_crc(crc: int) -> str:
    return f"{crc:08x}"


def _is_plain(scheme: Scheme) -> bool:
    """Whether a tensor of this scheme is an ordinary safetensors tensor."""
    return not scheme.has_scale and scheme.dtype.safetensors is not None and scheme.dtype.bits >= 8


def _tensors(params: Mapping[str, WeightStore]) -> tuple[dict[str, TensorOut], dict[str, Any]]:
    """Tensors to write, and scheme and shape of those that are stored in parts."""
    tensors: dict[str, TensorOut] = {}
    schemes: dict[str, Any] = {}
    for key, store in params.items():
        if _is_plain(store.scheme):
            tag = tag_of(store.scheme.dtype.host)
            tensors[key] = TensorOut(tag=tag, shape=store.shape, read=_PlainReader(store).read, done=store.release)
        else:
            schemes[key] = {"scheme": str(store.scheme), "shape": list(store.shape)}
            tensors |= dict(_PackedReader(key, store).tensor_outs())
    return tensors, schemes


class _PlainReader:
    """Reads a tensor of plain numbers when it is written."""

    def __init__(self, store: WeightStore) -> None:
        self._store = store

    def read(self) -> Array:
        """Return the stored elements in the tensor's shape."""
        return self._store.packed().codes().reshape(self._store.shape)


class _PackedReader:
    """Reads a tensor in parts. Words are written first; scales are kept for the next write, not computed again."""

    def __init__(self, key: str, store: WeightStore) -> None:
        self._key, self._store = key, store
        self._scales: Array | None = None
        self._offsets: Array | None = None

    def tensor_outs(self) -> Iterator[tuple[str, TensorOut]]:
        """Yield name and description of each stored part: words, then scales and offsets if present."""
        scheme, shape = self._store.scheme, self._store.shape
        k = shape[-1] if shape else 1
        rows = 1
        for axis in shape[:-1]:
            rows *= axis
        done = self._store.release
        yield self._key, TensorOut(tag="U32", shape=(rows, scheme.words_per_row(k)), read=self._read_payload, done=done)
        if scheme.scale_dtype is not None:
            groups = (rows, scheme.groups_per_row(k))
            tag = tag_of(scheme.scale_dtype.host)
            yield self._key + SCALES, TensorOut(tag=tag, shape=groups, read=self._read_scales)
            if scheme.has_offset:
                yield self._key + OFFSETS, TensorOut(tag=tag, shape=groups, read=self._read_offsets)

    def _read_payload(self) -> Array:
        packed = self._store.packed()
        # Copies: the parts may be views that would keep the whole tensor.
        self._scales = None if packed.scales is None else packed.scales.copy()
        self._offsets = None if packed.offsets is None else packed.offsets.copy()
        return packed.payload

    def _read_scales(self) -> Array:
        scales, self._scales = self._scales, None
        return self._require_words_first(scales)

    def _read_offsets(self) -> Array:
        offsets, self._offsets = self._offsets, None
        return self._require_words_first(offsets)

    def _require_words_first(self, part: Array | None) -> Array:
        if part is None:
            raise CheckpointError(f"{self._key}: scales are requested before their words")
        return part


def read_native(directory: Path, dtype: Scheme | None = None) -> tuple[Network, Params, NativeFacts]:
    """Open a checkpoint; weights are read on demand, and converted to `dtype` if it is given.

    Raises
    ------
    CheckpointError
        A file is damaged, or the weights do not fit the network.
    """
    network, params, facts = _read_checkpoint(directory / NATIVE_NAME, directory / WEIGHTS_NAME, dtype)
    if facts.hidden is not None and facts.hidden not in network.layers:
        raise CheckpointError(f"{directory}: hidden states come from {facts.hidden}, but there is no layer")
    return network, params, facts


def read_clocked(directory: Path, network: Network) -> Clocked | None:
    """Return how a network runs tick by tick, None if its checkpoint does not describe this.

    Raises
    ------
    CheckpointError
        clocked.json is damaged, or is for another network.
    """
    path = directory / CLOCKED_NAME
    if not path.exists():
        return None
    data = read_bytes(path, MAX_NETWORK_BYTES)
    try:
        return Clocked.from_json(data, network)
    except VolumetricError as error:
        raise CheckpointError(f"{path}: {error}", hint=error.hint) from None


def read_native_head(directory: Path, facts: NativeFacts) -> PooledHead | None:
    """Open the head that classifies pooled hidden states, as stored; None if there is none.

    Raises
    ------
    CheckpointError
        A file is damaged or missing.
    """
    if facts.pooling is None:
        return None
    network, params, _ = _read_checkpoint(directory / HEAD_NAME, directory / HEAD_WEIGHTS_NAME, None)
    return PooledHead(network=network, params=params, pooling=facts.pooling)


def _read_checkpoint(
    structure_path: Path, weights_path: Path, dtype: Scheme | None
) -> tuple[Network, Params, NativeFacts]:
    """Read the files of `_write_checkpoint`; raises as `read_native`."""
    structure, where = read_bytes(structure_path, MAX_NETWORK_BYTES), str(weights_path)
    try:
        network = Network.from_json(structure)
    except CheckpointError:
        raise
    except PluginError as error:
        raise PluginError(f"{structure_path}: {error}", hint=error.hint) from None
    except (VolumetricError, RecursionError) as error:
        raise CheckpointError(f"{structure_path}: {error}", hint="the file is damaged") from error
    file = SafetensorsFile(weights_path)
    about = _read_about(file, where)
    if about["network"] != _hex_crc(zlib.crc32(structure)):
        raise CheckpointError(
            f"{structure_path} does not belong to {weights_path.name}",
            hint="one of the two files was changed or copied without the other",
        )
    check_record(about.get(PLUGINS, {}), where)
    source = _ChecksumSource(file, about["crc32"], where)
    targets = target_schemes(network, dtype)
    stores: dict[str, WeightStore] = {}
    for key in file.entries:
        if key.endswith((SCALES, OFFSETS)):
            continue
        stores[key] = _store(key, source, about["tensors"].get(key), targets.get(key))
    ordered = {key: stores[key] for key in network.param_specs() if key in stores}
    check_params(network, ordered | stores)
    return network, Params(ordered), read_facts(about, where)


def _read_about(file: SafetensorsFile, where: str) -> dict[str, Any]:
    """Read and check the metadata of a weights file."""
    try:
        about = json.loads(file.metadata.get(METADATA_KEY, "{}"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: metadata {METADATA_KEY!r} are not JSON") from error
    if not isinstance(about, dict) or about.get("version") != VERSION:
        raise CheckpointError(f"{where} was written by another version", hint=f"expected version {VERSION}")
    tensors, sums = about.get("tensors"), about.get("crc32")
    if (
        not isinstance(sums, dict)
        or not isinstance(about.get("network"), str)
        or not file.entries.keys() <= sums.keys()
    ):
        raise CheckpointError(f"{where}: metadata {METADATA_KEY!r} lack checksums")
    if not isinstance(tensors, dict):
        raise CheckpointError(f"{where}: metadata {METADATA_KEY!r} lack tensors")
    for key in tensors:
        if key not in file.entries:
            raise CheckpointError(f"{where}: tensor {key!r} is in the metadata, but missing in the file")
    return about


class _ChecksumSource:
    """A weights file whose tensors are checked against checksums when they are first read."""

    def __init__(self, file: SafetensorsFile, sums: Mapping[str, str], where: str) -> None:
        self.file = file
        self._where = where
        self._sums = dict(sums)

    def names(self, key: str) -> list[str]:
        """Return the tensors of the file that form the parameter `key`."""
        return [name for name in (key, key + SCALES, key + OFFSETS) if name in self.file.entries]

    def check(self, key: str) -> None:
        """Raise `CheckpointError` if a part of `key` has a wrong checksum."""
        for name in self.names(key):
            expected = self._sums.pop(name, None)
            if expected is None:
                continue  # it was checked before
            actual = _hex_crc(zlib.crc32(np.ascontiguousarray(self.file.array(name)).reshape(-1).view(np.uint8).data))
            if actual != expected:
                self._sums[name] = expected
                raise CheckpointError(f"{self._where}: tensor {name!r} has checksum {actual}, expected {expected}")

    def release(self, key: str) -> None:
        """Release the pages of all parts of `key`."""
        for name in self.names(key):
            self.file.release(name)


def _store(key: str, source: _ChecksumSource, about: object, target: Scheme | None) -> WeightStore:
    file = source.file
    if about is None:
        stored, shape = file.scheme(key), file.entries[key].shape

        def plain() -> Packed:
            source.check(key)
            return convert(file.packed(key), target)

        return WeightStore(shape, target or stored, plain, release=lambda: source.release(key))
    scheme, shape = _read_scheme(key, about)
    _assemble(key, file, scheme, shape)  # views only: detects parts that do not fit before anything runs

    def packed() -> Packed:
        source.check(key)
        return convert(_assemble(key, file, scheme, shape), target)

    return WeightStore(shape, target or scheme, packed, release=lambda: source.release(key))


def _read_scheme(key: str, about: object) -> tuple[Scheme, Shape]:
    if not isinstance(about, dict) or about.keys() != {"scheme", "shape"}:
        raise CheckpointError(f"tensor {key!r}: metadata must have scheme and shape")
    scheme, shape = about["scheme"], about["shape"]
    if not isinstance(scheme, str) or not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise CheckpointError(f"tensor {key!r}: scheme or shape in the metadata is ill-typed")
    try:
        return Scheme.parse(scheme), tuple(shape)
    except VolumetricError as error:
        raise CheckpointError(f"tensor {key!r}: {error}", hint=error.hint) from error


def _assemble(key: str, file: SafetensorsFile, scheme: Scheme, shape: Shape) -> Packed:
    """Assemble a packed tensor from views of its parts."""
    parts = {name: file.array(key + name) for name in (SCALES, OFFSETS) if key + name in file.entries}
    try:
        return Packed(
            scheme=scheme,
            shape=shape,
            payload=file.array(key),
            scales=parts.get(SCALES),
            offsets=parts.get(OFFSETS),
        )
    except VolumetricError as error:
        raise CheckpointError(f"tensor {key!r}: {error}", hint="the checkpoint is damaged") from error
