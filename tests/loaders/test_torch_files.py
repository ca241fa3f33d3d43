"""Files of torch.save, read without torch: what real torch wrote, and what somebody else might."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import struct
import tracemalloc
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from volumetric import Coord, Grid, Network, initialise
from volumetric.analysis import predict
from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.detect import load_state
from volumetric.dtypes import decode
from volumetric.layers import LSTM, Dense
from volumetric.loaders import open_model, read_arrays, save_arrays
from volumetric.loaders.shards import open_safetensors
from volumetric.loaders.torch_file import TorchFile

HOME = Path(__file__).parents[1] / "fixtures" / "torch_files"


def net(hidden: int = 5) -> Network:
    layers = {
        Coord(0): Dense(in_features=3, out_features=hidden, activation="tanh"),
        Coord(1): Dense(in_features=hidden, out_features=2),
    }
    return Network(grid=Grid(2), layers=layers, input_shape=(3,), input_dtype="float32")


@pytest.mark.parametrize("name", ["views.pt", "views_old.bin"])
def test_tensors_have_the_values_that_torch_has(name: str) -> None:
    file = TorchFile(HOME / name)
    with np.load(HOME / "views.npz") as expected:
        assert {*file.entries} >= {"transposed", "strided", "shared", "expanded", "scalar", "empty", "float8_e4m3fn"}
        for tensor, entry in file.entries.items():
            np.testing.assert_array_equal(file.array(tensor).astype(np.float64), expected[tensor], err_msg=tensor)
            assert entry.shape == expected[tensor].shape
            if tensor != "bool":
                np.testing.assert_array_equal(decode(file.packed(tensor), np.float64), expected[tensor], err_msg=tensor)
        np.testing.assert_array_equal(decode(file.packed_rows("transposed", 2, 4)), expected["transposed"][2:4])


@pytest.mark.parametrize("name", ["sequential.pt", "sequential_old.pth", "checkpoint.ckpt"])
def test_a_network_of_torch_computes_what_torch_computes(name: str) -> None:
    with np.load(HOME / "sequential.npz") as expected:
        model = volumetric.load(HOME / name, device="reference", guess={"activation": "tanh"})
        np.testing.assert_allclose(model.predict(expected["x"]), expected["y"], rtol=1e-6, atol=1e-6)
        params = load_state(net(), HOME / name)
        np.testing.assert_allclose(predict(net(), params, expected["x"], device="reference"), expected["y"], atol=1e-6)


def test_parts_of_a_checkpoint() -> None:
    assert TorchFile(HOME / "checkpoint.ckpt").part == "model_state_dict"
    state = read_arrays(HOME / "checkpoint.ckpt", part="optimizer_state_dict.state")
    assert state["0.exp_avg"].shape == (5, 3)
    with pytest.raises(CheckpointError, match="no part 'ema'"):
        read_arrays(HOME / "checkpoint.ckpt", part="ema")
    with pytest.raises(SpecError, match="has no parts"):
        read_arrays(HOME / "views.npz", part="a")


def test_the_weights_of_two_parts_must_be_chosen(tmp_path: Path) -> None:
    write(tmp_path / "two.pt", {"teacher": {"w": vector(2)}, "student": {"w": vector(2)}})
    with pytest.raises(CheckpointError, match="'teacher', 'student'") as caught:
        TorchFile(tmp_path / "two.pt")
    assert "part='teacher'" in (caught.value.hint or "")
    assert read_arrays(tmp_path / "two.pt", part="student")["w"].shape == (2,)


def test_a_directory_of_hugging_face_with_torch_weights(tmp_path: Path) -> None:
    """The same model from safetensors, from pytorch_model.bin, and from shards with an index."""
    model = Path("tests/fixtures/hf_tiny/llama")
    expected = open_model(model)
    arrays = read_arrays(model / "model.safetensors")
    for place in ("one", "shards"):
        shutil.copytree(model, tmp_path / place, ignore=shutil.ignore_patterns("*.safetensors"))
    write(tmp_path / "one/pytorch_model.bin", arrays)
    names = [*arrays]
    cut = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
    for file, own in cut.items():
        write(tmp_path / "shards" / file, {name: arrays[name] for name in own})
    index = {"weight_map": {name: file for file, own in cut.items() for name in own}}
    (tmp_path / "shards/pytorch_model.bin.index.json").write_text(json.dumps(index))
    for place in ("one", "shards"):
        loaded = open_model(tmp_path / place)
        for key, store in expected.params.items():
            np.testing.assert_array_equal(loaded.params[key].values(), store.values(), err_msg=key)
    (tmp_path / "shards/pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        open_model(tmp_path / "shards")


def test_weights_of_a_network_are_saved_and_loaded(tmp_path: Path) -> None:
    params = initialise(net(), seed=3)
    for ending in ("safetensors", "npz"):
        save_arrays(tmp_path / f"w.{ending}", params)
        again = load_state(net(), tmp_path / f"w.{ending}")
        assert all(np.array_equal(again[key].values(), params[key].values()) for key in params)
    with pytest.raises(UnsupportedError, match=r"npz and \.safetensors"):
        save_arrays(tmp_path / "w.txt", params)


def test_an_lstm_of_torch() -> None:
    network = Network(layers=[LSTM(input_size=3, hidden_size=4)], input_shape=(3,), input_dtype="float32")
    arrays = read_arrays(HOME / "lstm.pt")
    params = load_state(network, {f"module.rnn.{name}": array for name, array in arrays.items()})
    np.testing.assert_array_equal(params["0.0.0.0/ih.weight"].values(), arrays["weight_ih_l0"])


def test_kernels_of_keras_are_turned(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((3, 5)), rng.standard_normal((5, 2))
    zeros = {"dense/bias:0": np.zeros(5), "dense_1/bias:0": np.zeros(2)}
    params = load_state(net(), {"dense/kernel:0": a, "dense_1/kernel:0": b, **zeros})
    np.testing.assert_allclose(params["1.0.0.0/weight"].values(), b.T, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("2.bias"), "module '2' has weight"),
        (lambda s: [s.pop("2.bias"), s.pop("2.weight")], "1 modules .0."),
        (lambda s: s.update({"4.weight": s["2.weight"]}), "3 modules"),
        (lambda s: s.update({"0.weight": s["0.weight"][:4]}), r"weight \[4, 3\]"),
        (lambda s: s.update({"0.weight": "text"}), "'0.weight' is no array"),
        (lambda s: [s.clear(), s.update({"0.0.0.0/weight": np.zeros((5, 3))})], "missing 0.0.0.0/bias"),
        (lambda s: [s.clear(), s.update({"0.0.0.0/weight": np.zeros((9, 3))})], r"shape \[9, 3\], expected \[5, 3\]"),
        (lambda s: s.clear(), "0 modules"),
    ],
)
def test_weights_that_do_not_fit_are_named(change: Any, message: str) -> None:
    state: dict[str, Any] = read_arrays(HOME / "sequential.pt")
    change(state)
    with pytest.raises((CheckpointError, SpecError), match=message) as caught:
        load_state(net(), state)
    assert caught.value.hint


def test_names_and_parts_of_the_weights() -> None:
    state = read_arrays(HOME / "sequential.pt")
    names = {"0.weight": "0.0.0.0/weight"}
    params = load_state(net(), state, names=names, strict=False)
    np.testing.assert_array_equal(params["0.0.0.0/weight"].values(), state["0.weight"])
    np.testing.assert_array_equal(params["1.0.0.0/weight"].values(), initialise(net())["1.0.0.0/weight"].values())
    for wrong in ({"x": "0.0.0.0/weight"}, {"0.weight": "x"}):
        with pytest.raises(SpecError, match="names: "):
            load_state(net(), state, names=wrong)


# -- files that nobody's torch wrote ---------------------------------------------------------------------------------


class _Global:
    """Stands for a name of torch in pickles that these tests write."""


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return ("storage", _named("torch", "FloatStorage"), *obj.args) if isinstance(obj, Storage) else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray):
            storage = Storage(str(len(self.storages)), "cpu", obj.size)
            self.storages.append(np.ascontiguousarray(obj, np.float32))
            strides = tuple(step // obj.itemsize for step in np.ascontiguousarray(obj).strides)
            return (
                _named("torch._utils", "_rebuild_tensor_v2"),
                (storage, 0, obj.shape, strides, False, OrderedDict()),
            )
        return NotImplemented

    storages: list[np.ndarray]


class Storage:
    """A persistent id: key, place, number of elements."""

    def __init__(self, *args: Any) -> None:
        self.args = args


def _named(module: str, name: str) -> Any:
    """Return a function that pickles as a name of torch, which is not installed."""
    import sys
    import types

    for part in ("torch", "torch._utils"):
        sys.modules.setdefault(part, types.ModuleType(part))
    holder = sys.modules[module]
    if not hasattr(holder, name):
        function = types.FunctionType((lambda *_: None).__code__, {}, name)
        function.__module__, function.__qualname__ = module, name
        setattr(holder, name, function)
    return getattr(holder, name)


@pytest.fixture(autouse=True)
def _no_torch_stays() -> Any:
    import sys

    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    yield
    for name, module in before.items():
        if module is None:
            sys.modules.pop(name, None)


def vector(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32)


def write(path: Path, value: Any) -> None:
    """Write a value with arrays as torch.save does, with arrays as tensors."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, protocol=2)
    pickler.storages = []
    pickler.dump(value)
    archive(path, buffer.getvalue(), [a.tobytes() for a in pickler.storages])


def archive(path: Path, data: bytes, storages: list[bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/data.pkl", data)
        file.writestr("archive/byteorder", "little")
        for i, content in enumerate(storages):
            file.writestr(f"archive/data/{i}", content)


def tensor(shape: tuple[int, ...], strides: tuple[int, ...], offset: Any = 0, count: int = 4) -> Any:
    """Return what pickles as a tensor of storage 0."""

    class View:
        def __reduce__(self) -> Any:
            rebuild = _named("torch._utils", "_rebuild_tensor_v2")
            return rebuild, (Storage("0", "cpu", count), offset, shape, strides, False, OrderedDict())

    return View()


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (tensor((5,), (1,)), "needs 20 bytes of a storage of 16"),
        (tensor((2,), (1,), offset=3), "needs 20 bytes"),
        (tensor((2, 2), (3, 1)), "needs 20 bytes"),
        (tensor((2,), (-1,)), "whole numbers of 0 or more"),
        (tensor((2,), (1,), offset=-1), "whole numbers of 0 or more"),
        (tensor((2, 2), (1,)), "strides"),
        (tensor((2.5,), (1,)), "whole numbers of 0 or more"),  # type: ignore[arg-type]
        (tensor((1 << 40, 1 << 40), (0, 0)), "larger than the file"),
        (tensor((1 << 61, 8), (0, 0)), "larger than the file"),
        (tensor((1,) * 40, (1,) * 40), "40 axes"),
        (tensor((2,), (1,), count=5), "has 16 bytes, expected 20"),
        (tensor((2,), (1,), count=-5), "whole number"),
    ],
)
def test_views_beyond_their_storage_are_refused(view: Any, message: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=2).dump({"w": view})
    archive(tmp_path / "x.pt", buffer.getvalue(), [bytes(16)])
    with pytest.raises(CheckpointError, match=message):
        TorchFile(tmp_path / "x.pt")


class _Runs:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {MARK}",)


MARK = "/tmp/volumetric_pickle_was_run"
HOSTILE: dict[str, tuple[bytes, str]] = {
    "system": (pickle.dumps({"w": _Runs()}, 2), "needs '(posix|nt).system'"),
    "protocol 4": (pickle.dumps(_Runs(), 4), "needs '(posix|nt).system'"),
    "protocol 0": (pickle.dumps(_Runs(), 0), "needs '(posix|nt).system'"),
    "inst": (b"(S'true'\nios\nsystem\n.", "instruction INST"),
    "obj": (b"(cos\nsystem\nS'true'\no.", "needs 'os.system'"),
    "eval": (b"cbuiltins\neval\n(S'1'\ntR.", "needs 'builtins.eval'"),
    "getattr": (b"cbuiltins\ngetattr\n.", "needs 'builtins.getattr'"),
    "a class, called": (b"ctorch\nFloatStorage\n)R.", "which cannot be called"),
    "extension": (b"\x82\x01.", "instruction EXT1"),
    "out of band": (b"\x97.", "NEXT_BUFFER"),
    "memo far away": (b"}r\xff\xff\xff\x7f.", "no tensors"),
    "text beyond the file": (b"X\xff\xff\xff\x7fabc.", "damaged"),
    "bytes beyond the file": (b"\x8e" + struct.pack("<Q", 1 << 62) + b"a.", "damaged"),
    "empty stack": (b"0.", "damaged"),
    "no mark": (b"t.", "damaged"),
    "no end": (b"}", "damaged"),
    "nothing": (b"", "damaged"),
    "noise": (bytes(range(255, 0, -1)), "damaged"),
    "itself": (b"]q\x00h\x00a.", "nests more than"),
    "laughs": (b"]q\x000" + b"".join(b"(h%ch%clq%c0" % (i, i, i + 1) for i in range(60)) + b"h\x3c.", "nests more"),
    "laughing keys": (
        b")q\x000" + b"".join(b"h%ch%c\x86q%c0" % (i, i, i + 1) for i in range(60)) + b"}h\x3cNs.",
        "not a plain value",
    ),
    "a storage of laughs": (
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu]tQ.",
        "whole number",
    ),
    "attributes of a list": (b"]}b.", "has no attributes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_run_nothing(name: str, tmp_path: Path) -> None:
    data, message = HOSTILE[name]
    Path(MARK).unlink(missing_ok=True)
    archive(tmp_path / "x.pt", data, [])
    (tmp_path / "old.pt").write_bytes(
        pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + b"\x80\x02}." + data
    )
    tracemalloc.start()
    for file in ("x.pt", "old.pt"):
        with pytest.raises(CheckpointError, match=message if file == "x.pt" else None):
            TorchFile(tmp_path / file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not Path(MARK).exists()
    assert peak < 256 << 20 if name in ("itself", "laughs") else peak < 4 << 20


@pytest.mark.parametrize("name", ["sequential.pt", "sequential_old.pth"])
def test_cut_and_changed_files_are_errors_or_read(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    whole = (HOME / name).read_bytes()
    path = tmp_path / name
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError):
            TorchFile(path)
    for at in rng.integers(len(whole), size=150):
        changed = bytearray(whole)
        changed[at] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        try:
            file = TorchFile(path)
            for each in file.entries:
                file.array(each)
        except CheckpointError:
            pass


def test_other_files_with_these_suffixes(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="a whole module") as caught:
        TorchFile(HOME / "module.pt")
    assert "state_dict()" in (caught.value.hint or "")
    for content, message in (
        (b"", "is empty"),
        (b"not torch", "neither a zip archive nor a pickle"),
        (pickle.dumps([1, 2]), "not one of torch.save"),
        (b"PK\x03\x04 and no more", "no complete zip"),
    ):
        (tmp_path / "x.pt").write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            TorchFile(tmp_path / "x.pt")
    archive(tmp_path / "packed.pt", b"}.", [bytes(9)], zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="compressed"):
        TorchFile(tmp_path / "packed.pt")
    with zipfile.ZipFile(tmp_path / "script.pt", "w") as file:
        for name in ("a/data.pkl", "a/constants.pkl", "a/code/x.py"):
            file.writestr(name, b"}.")
    with pytest.raises(CheckpointError, match="TorchScript"):
        open_safetensors(tmp_path / "script.pt")
