"""The safetensors reader and writer: exact values, agreement with the reference package, and bad files."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volumetric.base.errors import CheckpointError
from volumetric.dtypes import decode
from volumetric.loaders.safetensors import TAGS, SafetensorsFile
from volumetric.loaders.safetensors_write import TensorOut, array_out, write_safetensors
from volumetric.loaders.shards import open_safetensors

HOSTED = {tag: info for tag, info in TAGS.items() if info.host is not None}


def sample(tag: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    host = TAGS[tag].host
    assert host is not None
    if host == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if TAGS[tag].bits == 4:
        return rng.integers(0, 16, shape, np.uint8).view(host)
    return rng.integers(0, 256, (*shape[:-1], shape[-1] * host.itemsize), np.uint8).view(host)


def file_bytes(header: dict | str, data: bytes = b"") -> bytes:
    text = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def f32(begin: int, end: int, *shape: int) -> dict:
    return {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize("tag", HOSTED)
def test_every_tag_comes_back_bit_for_bit(tag: str, tmp_path: Path, rng: np.random.Generator) -> None:
    value = sample(tag, (3, 6), rng)
    write_safetensors(tmp_path / "a.safetensors", {"x": array_out(value), "y": array_out(value[:1])}, {"k": "v"})
    file = SafetensorsFile(tmp_path / "a.safetensors")
    assert file.metadata == {"k": "v"}
    assert file.entries["x"].type == tag
    assert file.array("x").tobytes() == value.tobytes()
    assert file.array("x").shape == (3, 6)
    assert not file.array("x").flags.writeable


@pytest.mark.parametrize("tag", ["F16", "BF16", "F32", "F64", "I8", "U16", "F8_E4M3", "F8_E5M2", "F4"])
def test_packed_holds_the_values(tag: str, tmp_path: Path, rng: np.random.Generator) -> None:
    value = np.nan_to_num(rng.standard_normal((3, 6))).astype(HOSTED[tag].host)
    write_safetensors(tmp_path / "a.safetensors", {"x": array_out(value)})
    file = SafetensorsFile(tmp_path / "a.safetensors")
    packed = file.packed("x")
    assert packed.scheme == file.scheme("x")
    np.testing.assert_array_equal(decode(packed, np.float64), value.astype(np.float64))
    np.testing.assert_array_equal(decode(file.packed_rows("x", 1, 3), np.float64), value[1:3].astype(np.float64))


def test_tensors_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a.safetensors", {"mask": array_out(np.ones((2, 2), bool))})
    with pytest.raises(CheckpointError, match=r"mask.*BOOL"):
        SafetensorsFile(tmp_path / "a.safetensors").packed("mask")


def test_wide_floats_are_views_of_the_file(tmp_path: Path) -> None:
    value = np.arange(64, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(4, 16)
    write_safetensors(tmp_path / "a.safetensors", {"x": array_out(value)})
    file = SafetensorsFile(tmp_path / "a.safetensors")
    assert np.shares_memory(file.packed("x").payload, file.array("x"))
    file.release("x")
    np.testing.assert_array_equal(file.array("x"), value)


def test_the_reference_package_agrees(tmp_path: Path, rng: np.random.Generator) -> None:
    from safetensors import safe_open
    from safetensors.numpy import save_file

    tensors = {"a": rng.standard_normal((2, 3)), "b": rng.integers(0, 9, 5), "c": np.zeros((0, 4), np.float16)}
    save_file(tensors, tmp_path / "theirs.safetensors", {"format": "pt"})
    ours = SafetensorsFile(tmp_path / "theirs.safetensors")
    assert ours.metadata == {"format": "pt"}
    for name, value in tensors.items():
        np.testing.assert_array_equal(ours.array(name), value)
    write_safetensors(tmp_path / "ours.safetensors", {name: array_out(value) for name, value in tensors.items()})
    with safe_open(tmp_path / "ours.safetensors", "np") as theirs:
        assert set(theirs.keys()) == set(tensors)
        for name, value in tensors.items():
            np.testing.assert_array_equal(theirs.get_tensor(name), value)


def test_writing_twice_gives_the_same_bytes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    a, b = np.ones((2, 3), np.float32), np.ones(4, np.float16)
    write_safetensors(tmp_path / "1.safetensors", {"a": array_out(a), "b": array_out(b)}, {"x": "1", "y": "2"})
    write_safetensors(tmp_path / "2.safetensors", {"b": array_out(b), "a": array_out(a)}, {"y": "2", "x": "1"})
    assert (tmp_path / "1.safetensors").read_bytes() == (tmp_path / "2.safetensors").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1.safetensors", "2.safetensors"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"a": array_out(np.ones(3, np.float32))})
    before = path.read_bytes()
    wrong = TensorOut(tag="F32", shape=(3,), read=lambda: np.ones(3, np.float64))
    with pytest.raises(CheckpointError, match="expected F32"):
        write_safetensors(path, {"a": wrong})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


BAD = {
    "empty": (b"", "is empty"),
    "no length": (b"\x01\x00", "too few"),
    "huge length": ((2**63).to_bytes(8, "little") + b"{}", "over the limit"),
    "length beyond file": ((50).to_bytes(8, "little") + b"{}", "beyond"),
    "not an object": (file_bytes("[1]"), r"start with '\{'"),
    "not JSON": (file_bytes('{"a"'), "not JSON"),
    "bad UTF-8": (b"\x05" + bytes(7) + b'{"\xff":', "not JSON"),
    "deep": (file_bytes('{"a":' * 5000), "not JSON"),
    "duplicate": (file_bytes('{"a":%s,"a":%s}' % ((json.dumps(f32(0, 4, 1)),) * 2), bytes(4)), "duplicate name"),
    "duplicate field": (
        file_bytes('{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}'),
        "duplicate name",
    ),
    "unknown dtype": (file_bytes({"a": {"dtype": "Q1", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)), "unknown"),
    "extra field": (file_bytes({"a": f32(0, 4, 1) | {"x": 1}}, bytes(4)), "exactly"),
    "missing field": (file_bytes({"a": {"dtype": "F32"}}), "exactly"),
    "not a tensor": (file_bytes({"a": 3}), "exactly"),
    "negative axis": (file_bytes({"a": f32(0, 4, -1)}, bytes(4)), "whole numbers"),
    "true axis": (file_bytes('{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}}', bytes(4)), "whole"),
    "float axis": (file_bytes('{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}', bytes(4)), "whole"),
    "NaN axis": (file_bytes('{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', bytes(4)), "NaN"),
    "many axes": (file_bytes({"a": f32(0, 4, *[1] * 40)}, bytes(4)), "whole numbers"),
    "overflow": (file_bytes({"a": f32(0, 4, 2**62, 2**62, 2**4)}, bytes(4)), "needs"),
    "wrong size": (file_bytes({"a": f32(0, 4, 2)}, bytes(4)), "needs 8 bytes"),
    "backwards": (file_bytes({"a": f32(4, 0, 1)}, bytes(4)), "begin"),
    "three offsets": (file_bytes({"a": f32(0, 4, 1) | {"data_offsets": [0, 4, 4]}}, bytes(4)), "begin"),
    "cut short": (file_bytes({"a": f32(0, 8, 2)}, bytes(4)), "ends at byte"),
    "trailing bytes": (file_bytes({"a": f32(0, 4, 1)}, bytes(9)), "belong to no tensor"),
    "hole": (file_bytes({"a": f32(0, 4, 1), "b": f32(8, 12, 1)}, bytes(12)), "hole"),
    "overlap": (file_bytes({"a": f32(0, 8, 2), "b": f32(4, 12, 2)}, bytes(12)), "overlap"),
    "same bytes": (file_bytes({"a": f32(0, 4, 1), "b": f32(0, 4, 1)}, bytes(4)), "overlap"),
    "half a byte": (file_bytes({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}}, bytes(2)), "whole bytes"),
    "metadata list": (file_bytes({"__metadata__": []}), "__metadata__"),
    "metadata number": (file_bytes({"__metadata__": {"a": 1}}), "__metadata__"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD.keys())
def test_bad_files_are_named_for_what_they_are(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        SafetensorsFile(path)
    assert str(path) in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["absent.safetensors", "."])
def test_paths_that_are_no_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot open"):
        SafetensorsFile(tmp_path / name)


def test_an_absent_tensor_is_named_with_its_neighbours(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a.safetensors", {"layer.weight": array_out(np.ones(3, np.float32))})
    with pytest.raises(CheckpointError, match=r"no tensor 'layer.weigth'") as caught:
        SafetensorsFile(tmp_path / "a.safetensors").array("layer.weigth")
    assert "layer.weight" in str(caught.value.hint)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("fuzz") / "a.safetensors"
    tensors = {"w": array_out(np.ones((3, 5), np.float32)), "é": array_out(np.zeros(3, ml_dtypes.bfloat16))}
    write_safetensors(path, tensors, {"format": "pt"})
    return path, path.read_bytes()


@pytest.mark.thorough
@settings(max_examples=400)
@given(data=st.data())
def test_mutated_files_load_or_raise_checkpoint_error(valid: tuple[Path, bytes], data: st.DataObject) -> None:
    path, content = valid
    mutated = bytearray(content)
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        mutated[at] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(mutated[: data.draw(st.integers(1, len(mutated)))] if data.draw(st.booleans()) else mutated))
    try:
        file = SafetensorsFile(path)
        for name in file.entries:
            file.array(name)
    except CheckpointError:
        pass


@pytest.mark.thorough
@settings(max_examples=200)
@given(header=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["a", "dtype", "shape", "data_offsets"]), inner),
))  # fmt: skip
def test_arbitrary_headers_load_or_raise_checkpoint_error(
    header: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "arbitrary.safetensors"
    path.write_bytes(file_bytes(json.dumps(header), bytes(8)))
    with pytest.raises(CheckpointError):
        SafetensorsFile(path)


def two_shards(home: Path) -> None:
    for part, name in ((1, "a"), (2, "b")):
        array = np.full((2, 2), part, np.float32)
        write_safetensors(home / f"model-{part:05d}-of-00002.safetensors", {name: array_out(array)})


def index(home: Path, weight_map: object) -> None:
    (home / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_shards_with_and_without_index(tmp_path: Path) -> None:
    two_shards(tmp_path)
    bare = open_safetensors(tmp_path)
    index(tmp_path, {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})
    indexed = open_safetensors(tmp_path)
    for source in (bare, indexed):
        assert list(source.entries) == ["a", "b"]
        np.testing.assert_array_equal(decode(source.packed("b")), np.full((2, 2), 2))


def test_one_file_wins_over_the_original_format_beside_it(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "weights.safetensors", {"a": array_out(np.ones(2, np.float32))})
    write_safetensors(tmp_path / "consolidated.safetensors", {"a": array_out(np.zeros(2, np.float32))})
    np.testing.assert_array_equal(decode(open_safetensors(tmp_path).packed("a")), [1, 1])


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    two_shards(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match="1 of 2 shards: model-00001-of-00002"):
        open_safetensors(tmp_path)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "../model.safetensors"}, "not a plain file name"),
        ({"a": "absent.safetensors"}, "does not exist"),
        ({"a": "model-00001-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}, "lists 1 tensors.*c"),
        ({}, "lists no tensors"),
        ([], "no weight_map"),
        ({"a": 1}, "no weight_map"),
    ],
)
def test_bad_indexes(weight_map: object, message: str, tmp_path: Path) -> None:
    two_shards(tmp_path)
    index(tmp_path, weight_map)
    with pytest.raises(CheckpointError, match=message):
        open_safetensors(tmp_path)


def test_one_name_in_two_shards_is_an_error(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_safetensors(tmp_path / f"{name}.safetensors", {"a": array_out(np.ones(1, np.float32))})
    with pytest.raises(CheckpointError, match=r"'a' is in two.safetensors and in another"):
        open_safetensors(tmp_path)


def test_a_directory_of_pickles_says_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"no weights in .*found model.pkl"):
        open_safetensors(tmp_path)


def test_tensors_are_asked_for_in_the_order_given_and_written_in_the_canonical_one(tmp_path: Path) -> None:
    told: list[str] = []

    def out(name: str, values: np.ndarray) -> TensorOut:
        def read() -> np.ndarray:
            told.append(f"read {name}")
            return values

        tag = "F32" if values.dtype == np.float32 else "F16"
        return TensorOut(tag=tag, shape=values.shape, read=read, done=lambda: told.append(f"done {name}"))

    values = {"b": np.ones((2, 3), np.float16), "a": np.zeros((0, 3), np.float32), "c": np.full(5, 2, np.float32)}
    write_safetensors(tmp_path / "1.safetensors", {name: out(name, array) for name, array in values.items()})
    assert told == ["read b", "done b", "read a", "done a", "read c", "done c"]
    write_safetensors(tmp_path / "2.safetensors", {name: array_out(values[name]) for name in "acb"})
    assert (tmp_path / "1.safetensors").read_bytes() == (tmp_path / "2.safetensors").read_bytes()
