"""The page reads headers of GGUF files as strictly as the command line: it takes and refuses the same files."""

from __future__ import annotations

import base64
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.web.engine_page import EnginePage
from tests.web.gguf_networks import write_dense
from tests.web.test_engine_package import SITE
from volumetric.base.errors import CheckpointError
from volumetric.loaders.gguf import GGUFFile, open_gguf
from volumetric.loaders.gguf_types import GGUF_TYPES
from volumetric.loaders.gguf_write import GGUFTensorOut, write_gguf

READ = """
const { Header } = await import(`${new URL("../engine/gguf/header.js", net)}`);
const read = ({ data, size, step }) => {
  const bytes = Uint8Array.from(atob(data), one => one.charCodeAt(0));
  try {
    const header = new Header(size ?? bytes.length);
    for (let at = 0; at < bytes.length; at += step) {
      if (!header.push(bytes.subarray(at, at + step))) continue;
      return { keys: [...header.metadata.keys()], tensors: Object.fromEntries(header.tensors), length: header.length };
    }
    return { error: "it is not complete" };
  } catch (error) {
    if (error.name !== "FormatError") throw error;
    return { error: error.message };
  }
};
return cases.map(read);
"""


def read(engine: EnginePage, files: list[bytes], *, step: int = 1000, **options: Any) -> list[dict[str, Any]]:
    """Return what the page reads in files that arrive in parts of `step` bytes."""
    cases = [{"data": base64.b64encode(file).decode(), "step": step, **options} for file in files]
    result: list[dict[str, Any]] = engine.run(READ, cases=cases)
    return result


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def head(*, version: int = 3, tensors: int = 0, keys: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def tensor(name: bytes, shape: list[int], kind: int, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def u32(key: bytes, value: int) -> bytes:
    return string(key) + struct.pack("<II", 4, value)


HOSTILE = {
    "does not begin with": b"PK\3\4" + bytes(100),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "version 1 is not": head(version=1),
    "the limits are": head(tensors=2**40),
    "reaches beyond the end": head(keys=1) + string(b"a") + struct.pack("<IQ", 8, 2**63 - 1),
    "more than 65535": head(keys=1) + struct.pack("<Q", 70_000) + bytes(80_000),
    "twice": head(keys=2) + 2 * u32(b"a.b", 1),
    "not UTF-8": head(keys=1) + string(b"\xff\xfe") + struct.pack("<II", 4, 1),
    "truth value 2": head(keys=1) + string(b"a") + struct.pack("<IB", 7, 2),
    "unknown type 77": head(keys=1) + string(b"a") + struct.pack("<I", 77),
    "array of type 9": head(keys=1) + string(b"a") + struct.pack("<IIQ", 9, 9, 1) + bytes(50),
    "announces 1099511627776 strings": head(keys=1) + string(b"a") + struct.pack("<IIQ", 9, 8, 2**40) + bytes(50),
    "part of a split model": head(keys=1) + u32(b"split.count", 2),
    "not a power of two": head(keys=1) + u32(b"general.alignment", 24),
    "axes, more than 4": head(tensors=1) + tensor(b"w", [1] * 5, 0, 0) + bytes(99),
    "does not fill blocks of 32 (Q4_0)": head(tensors=1) + tensor(b"w", [33], 2, 0) + bytes(99),
    "unknown type 99": head(tensors=1) + tensor(b"w", [1], 99, 0) + bytes(99),
    "not a multiple of 32": head(tensors=1) + tensor(b"w", [1], 0, 4) + bytes(99),
    "it is cut off": head(tensors=1) + tensor(b"w", [2**40, 2**40], 0, 0) + bytes(99),
    "two tensors": head(tensors=2) + tensor(b"w", [1], 0, 0) + tensor(b"w", [1], 0, 32) + bytes(99),
    "overlap": head(tensors=2) + tensor(b"v", [16], 0, 0) + tensor(b"w", [1], 0, 32) + bytes(999),
}


def test_damaged_and_hostile_headers(engine: EnginePage, tmp_path: Path) -> None:
    for (sentence, file), result in zip(HOSTILE.items(), read(engine, list(HOSTILE.values()), step=64), strict=True):
        assert sentence in result.get("error", ""), (sentence, result)
        path = tmp_path / "hostile.gguf"
        path.write_bytes(file)
        with pytest.raises(CheckpointError):
            open_gguf(path)


def test_the_same_files_are_read_as_by_the_command_line(engine: EnginePage, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    path = tmp_path / "file.gguf"
    metadata = {
        "a.bool": True, "a.text": "é", "a.words": ["x", "", "yz"], "a.bytes": np.arange(5, dtype=np.int8),
        "a.flags": np.array([True, False]), "a.wide": np.uint64(2**60), "a.real": np.float64(0.1),
    }  # fmt: skip
    blocks = np.zeros(2 * 18, np.uint8)
    tensors = {
        "q": GGUFTensorOut(type="Q4_0", shape=(2, 32), read=lambda: blocks),
        "v": GGUFTensorOut(type="F32", shape=(3,), read=lambda: np.zeros(3, np.float32)),
    }
    write_gguf(path, metadata, tensors)
    whole = path.read_bytes()
    end = whole.index(b"\1v") if b"\1v" in whole else len(whole)
    files = [whole, b"GGUF\2" + whole[5:]]
    files += [whole[: int(cut)] for cut in rng.integers(1, len(whole), 40)]
    for at, value in zip(rng.integers(4, end, 300), rng.integers(0, 256, 300), strict=True):
        files.append(whole[:at] + bytes([value]) + whole[at + 1 :])
    taken = 0
    for file, result in zip(files, read(engine, files, step=37), strict=True):
        path.write_bytes(file)
        try:
            expected = open_gguf(path)
        except CheckpointError:
            expected = None
        assert ("error" in result) == (expected is None), result
        if expected is None:
            continue
        taken += 1
        assert result["keys"] == list(expected.metadata)
        entries = {name: [entry.start, entry.stop, list(entry.shape)] for name, entry in expected.entries.items()}
        assert entries == {name: [t["start"], t["stop"], t["shape"][::-1]] for name, t in result["tensors"].items()}
    assert 100 < taken < len(files) - 40


def test_files_beyond_four_gigabytes(engine: EnginePage) -> None:
    """Only the header has arrived."""
    file = head(tensors=2) + tensor(b"v", [2**31], 0, 0) + tensor(b"w", [2**20, 2**20], 0, 2**33)
    [result] = read(engine, [file + bytes(200)], size=2**43)
    start = -(-result["length"] // 32) * 32
    assert result["tensors"]["w"] == {
        "type": 0, "shape": [2**20, 2**20], "start": start + 2**33, "stop": start + 2**33 + 2**42,
    }  # fmt: skip
    assert "it is cut off" in read(engine, [file + bytes(200)], size=2**42)[0]["error"]


def test_the_header_of_a_model(engine: EnginePage, tmp_path: Path) -> None:
    path = write_dense(tmp_path / "dense.gguf", np.ones(10, np.float32))
    expected = GGUFFile(path)
    for step in (3, 70_000):
        [result] = read(engine, [path.read_bytes()[:80_000]], step=step, size=path.stat().st_size)
        assert list(result["tensors"]) == list(expected.entries)
        assert result["tensors"]["w"]["start"] == expected.entries["w"].start


def test_types_are_those_of_the_command_line() -> None:
    text = (SITE / "gguf" / "header.js").read_text()
    types = re.findall(r'(\d+): \["(\w+)", (\d+), (\d+)\]', text)
    assert {int(n): (name, int(block), int(size)) for n, name, block, size in types} == {
        number: (kind.name, kind.block, kind.block_bytes) for number, kind in GGUF_TYPES.items()
    }
