"""The native checkpoint: exact for every scheme, the same bytes for the same model, whole or not there at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric.base.errors import CheckpointError
from volumetric.dtypes import DTYPES, Scheme
from volumetric.layers import Dense
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import convert_model, save_model
from volumetric.loaders.native_checkpoint import METADATA_KEY, NativeFacts, read_native, save_native
from volumetric.loaders.safetensors import SafetensorsFile
from volumetric.loaders.safetensors_write import array_out, write_safetensors
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import WeightStore

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
SCHEMES = [
    *(Scheme.default(dtype) for dtype in DTYPES),
    *map(Scheme.parse, ("int8:none", "int4:g64", "uint8:row:bf16")),
]


def network() -> Network:
    """Two layers whose rows fill neither words nor groups."""
    layers = {Coord(0): Dense(in_features=37, out_features=5), Coord(1): Dense(in_features=5, out_features=3)}
    return Network(grid=Grid(2), layers=layers, input_shape=(37,), input_dtype="float32")


def params_in(scheme: Scheme, seed: int = 0) -> Params:
    stores = initialise(network(), seed)
    for key, store in stores.items():
        if key.endswith("weight"):
            if not scheme.has_scale and scheme.dtype.kind != "float":
                store.assign(np.rint(3 * store.values() / np.abs(store.values()).max()).astype(np.float32))
            store.morph(scheme)
    return stores


def content(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_every_scheme_comes_back_bit_for_bit(scheme: Scheme, tmp_path: Path) -> None:
    params = params_in(scheme)
    save_native(tmp_path / "a", network(), params, facts=NativeFacts(context_length=77))
    read, again, facts = read_native(tmp_path / "a")
    assert (read, facts.context_length, list(again)) == (network(), 77, list(params))
    for key, store in params.items():
        expected, found = store.packed(), again[key].packed()
        assert found.scheme == expected.scheme == again[key].scheme
        assert found.payload.tobytes() == expected.payload.tobytes()
        for part, other in ((found.scales, expected.scales), (found.offsets, expected.offsets)):
            assert (b"" if part is None else part.tobytes()) == (b"" if other is None else other.tobytes())
        again[key].release()
    before = content(tmp_path / "a")
    save_native(tmp_path / "a", read, again, facts=facts)
    assert content(tmp_path / "a") == before


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_models_keep_everything(family: str, tmp_path: Path) -> None:
    convert_model(str(TINY / family), tmp_path / "m")
    first, again = open_model(str(TINY / family)), open_model(str(tmp_path / "m"))
    assert again.network == first.network
    assert again.generation == first.generation
    assert (again.context_length, again.config) == (first.context_length, first.config)
    for key, store in first.params.items():
        np.testing.assert_array_equal(again.params[key].values(), store.values())
    before = content(tmp_path / "m")
    save_model(tmp_path / "m", again)
    assert content(tmp_path / "m") == before


def test_opening_converts_when_asked(tmp_path: Path) -> None:
    convert_model(str(TINY / "llama"), tmp_path / "m", dtype="bf16")
    schemes = {key: str(store.scheme) for key, store in open_model(str(tmp_path / "m"), dtype="int4").params.items()}
    assert (schemes["0.0.0.0/weight"], schemes["1.0.0.1/q.weight"], schemes["1.0.0.0/weight"]) == (
        "int8:g32",
        "int4:g32",
        "float32",
    )


def test_plain_tensors_are_readable_by_others(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    params = initialise(network())
    save_native(tmp_path / "a", network(), params)
    read = load_file(tmp_path / "a" / "weights.safetensors")
    for key, store in params.items():
        np.testing.assert_array_equal(read[key], store.values())


def test_other_directories_are_not_overwritten(tmp_path: Path) -> None:
    home = tmp_path / "a"
    home.mkdir()
    save_native(home, network(), initialise(network()))  # an empty one is
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"contains other files and no network.json"):
        save_native(tmp_path / "b", network(), initialise(network()))
    with pytest.raises(CheckpointError, match="is a file"):
        save_native(tmp_path / "b" / "thesis.tex", network(), initialise(network()))
    assert (tmp_path / "b" / "thesis.tex").read_text() == "years of work"


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    save_native(tmp_path / "a", network(), initialise(network()))
    before = content(tmp_path)

    def fail() -> Any:
        raise CheckpointError("the source is gone")

    broken = dict(initialise(network(), 1))
    broken["1.0.0.0/bias"] = WeightStore((3,), Scheme.parse("float32"), fail)
    with pytest.raises(CheckpointError, match="the source is gone"):
        save_native(tmp_path / "a", network(), broken)
    assert content(tmp_path) == before


def test_parameters_that_do_not_fit_are_not_written(tmp_path: Path) -> None:
    params = {key: store for key, store in initialise(network()).items() if key != "1.0.0.0/bias"}
    with pytest.raises(CheckpointError, match=r"missing 1.0.0.0/bias"):
        save_native(tmp_path / "a", network(), params)
    assert list(tmp_path.iterdir()) == []


def damage_metadata(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def damage(home: Path) -> None:
        file = SafetensorsFile(home / "weights.safetensors")
        about = json.loads(file.metadata[METADATA_KEY])
        change(about)
        tensors = {name: array_out(file.array(name).copy()) for name in file.entries}
        write_safetensors(home / "weights.safetensors", tensors, {METADATA_KEY: json.dumps(about)})

    return damage


def drop(name: str) -> Callable[[Path], None]:
    def damage(home: Path) -> None:
        file = SafetensorsFile(home / "weights.safetensors")
        tensors = {n: array_out(file.array(n).copy()) for n in file.entries if n != name}
        write_safetensors(home / "weights.safetensors", tensors, file.metadata)

    return damage


KEY = "0.0.0.0/weight"
DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no network": (lambda home: (home / "network.json").write_text(""), r"network.json"),
    "other network": (lambda home: (home / "network.json").write_text('{"format": "x"}'), r"network.json"),
    "deep network": (lambda home: (home / "network.json").write_text("[" * 99_999), r"network.json"),
    "no weights": (lambda home: (home / "weights.safetensors").unlink(), "cannot open"),
    "no metadata": (damage_metadata(lambda about: about.clear()), "written by another version"),
    "version": (damage_metadata(lambda about: about.update(version=2)), "written by another version"),
    "context": (damage_metadata(lambda about: about.update(context_length="x")), "lack context_length"),
    "classes": (damage_metadata(lambda about: about.update(classes=[1])), "not a list of names"),
    "hidden states": (damage_metadata(lambda about: about.update(hidden="0.0.0.9")), "there is no layer"),
    "no coordinate": (damage_metadata(lambda about: about.update(hidden=[1])), "is not a coordinate"),
    "pooling": (damage_metadata(lambda about: about.update(pooling="x")), "pooling in the metadata is not one of"),
    "no head": (damage_metadata(lambda about: about.update(pooling="cls")), "head.json"),
    "statistics": (damage_metadata(lambda about: about.update(inputs={"mean": [0.0]})), "must have mean and deviation"),
    "a deviation of 0": (
        damage_metadata(lambda about: about.update(inputs={"mean": [0.0], "deviation": [0.0]})),
        "deviations above 0",
    ),
    "scheme": (damage_metadata(lambda about: about["tensors"][KEY].update(scheme="int5")), KEY),
    "ill-typed scheme": (damage_metadata(lambda about: about["tensors"][KEY].update(scheme=5)), "ill-typed"),
    "shape": (damage_metadata(lambda about: about["tensors"][KEY].update(shape=[5, 38])), KEY),
    "huge shape": (damage_metadata(lambda about: about["tensors"][KEY].update(shape=[2**62, 2**62])), KEY),
    "negative shape": (damage_metadata(lambda about: about["tensors"][KEY].update(shape=[-5, -37])), "ill-typed"),
    "extra field": (damage_metadata(lambda about: about["tensors"][KEY].update(x=1)), "must have scheme and shape"),
    "forgotten scheme": (damage_metadata(lambda about: about["tensors"].pop(KEY)), KEY),
    "named tensor": (damage_metadata(lambda about: about["tensors"].update(x=1)), "'x' is in the metadata"),
    "no scales": (drop(KEY + ":scales"), KEY),
    "no offsets": (drop(KEY + ":offsets"), KEY),
    "no words": (drop(KEY), "is in the metadata, but missing in the file"),
    "no bias": (drop("1.0.0.0/bias"), r"missing 1.0.0.0/bias"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_checkpoints_are_named(damage: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    save_native(tmp_path / "a", network(), params_in(Scheme.parse("uint4")))
    damage(tmp_path / "a")
    with pytest.raises(CheckpointError, match=message):
        open_model(str(tmp_path / "a"))
