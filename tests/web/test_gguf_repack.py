"""Rows of a GGUF file are repacked as the format says, for any table, and written where they belong, at any byte."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.web.engine_page import EnginePage

REPACK = """
const { Repacking, Words } = await import(`${new URL("../engine/gguf/repack.js", net)}`);
return cases.map(({ type, part, length, rows, seed, plus }) => {
  const bytes = new Uint8Array(rows * length);
  let state = seed;
  const next = () => (state = (Math.imul(state, 1103515245) + 12345) >>> 0);
  for (let i = 0; i < bytes.length; i++) bytes[i] = next() >>> 24;
  const repacking = type ? new Repacking(type, part, length) : new Words(plus);
  return { from: bytes, to: repacking.repack(bytes, rows), bytes: repacking.bytes };
});
"""
PLACES = """
const { RowWriter, runsOf, runsWithin } = await import(`${new URL("../engine/gguf/row_places.js", net)}`);
return cases.map(({ places, rows, size, step, total }) => {
  const buffer = new Uint8Array(total), runs = runsOf(places, rows, Math.floor(total / size), 16 * rows);
  if (runs === null) return null;
  const writer = new RowWriter((offset, bytes) => {
    if (offset % 4 || bytes.length % 4) throw new RangeError("no whole words");
    buffer.set(bytes, offset);
  });
  for (let first = 0; first < rows; first += step) {
    for (const [t, b, count] of runsWithin(runs, first, first + step)) {
      writer.write(b * size, Uint8Array.from({ length: count * size }, (_, i) => 1 + (t * size + i) % 251));
    }
  }
  return buffer;
});
"""


def moved(row: bytes, section: dict[str, Any], block_bytes: int) -> bytes:
    """Return a section of a row, bit by bit as docs/web_format.md has it."""
    blocks, words = len(row) // block_bytes, section["words"]
    value = int.from_bytes(row, "little")
    filled = -(-blocks * 4 * words // section["blocks"])
    size = -(-filled // section["align"]) * section["align"]
    result = []
    for group in range(-(-blocks // section["blocks"])):
        for word in range(words):
            bits = 0
            for target, delta, mask in section["terms"]:
                at = 8 * section["blocks"] * block_bytes * group + delta
                window = (value >> at if at >= 0 else value << -at) & 0xFFFFFFFF
                bits |= window & mask if target == word else 0
            result.append(bits ^ (section["xor"][word] if "xor" in section else 0))
    return np.array(result, "<u4").tobytes()[:filled].ljust(size, b"\0")


def random_section(rng: np.random.Generator, block_bytes: int) -> dict[str, Any]:
    blocks, words = int(rng.choice([1, 2, 4])), int(rng.integers(1, 5))
    terms = []
    for word in range(words):
        for _ in range(int(rng.integers(0, 4))):
            mask = int(rng.choice([0xFFFFFFFF, 0xF0F, 0x80000000, 0x3FF00, int(rng.integers(1, 2**32))]))
            terms.append([word, int(rng.integers(-64, 8 * blocks * block_bytes + 32)), mask])
    section = {"blocks": blocks, "words": words, "align": int(rng.choice([2, 4, 16])), "terms": terms}
    return section | ({"xor": rng.integers(0, 2**32, words).tolist()} if rng.random() < 0.5 else {})


def test_any_table(engine: EnginePage) -> None:
    rng = np.random.default_rng(1)
    cases = []
    for seed in range(60):
        block_bytes = int(rng.integers(1, 40))
        parts = {"units": [random_section(rng, block_bytes) for _ in range(rng.integers(1, 3))]}
        rows = 400 if seed == 0 else int(rng.integers(1, 6))  # more than a tile, once
        length = block_bytes * int(rng.integers(1, 20 if seed else 12))
        cases.append(
            {
                "type": {"block_bytes": block_bytes, "parts": parts},
                "part": "units",
                "length": length,
                "rows": rows,
                "seed": seed,
            }
        )
    cases += [{"type": None, "length": 4, "rows": 70, "seed": 1, "plus": plus} for plus in (0, 1)]
    for case, result in zip(cases, engine.run(REPACK, cases=cases), strict=True):
        rows = result["from"].reshape(case["rows"], case["length"])
        type_ = case["type"]
        if type_ is None:
            expected = (rows.view("<f4") + np.float32(case["plus"])).tobytes() if case["plus"] else rows.tobytes()
        else:
            sections, block_bytes = type_["parts"]["units"], type_["block_bytes"]
            expected = b"".join(moved(bytes(row), section, block_bytes) for row in rows for section in sections)
        assert result["to"].tobytes() == expected, case
        assert result["bytes"] * case["rows"] == len(expected)


def place(places: list[Any], rows: int, size: int, total: int) -> bytes:
    """Return a buffer into which rows of a tensor are written."""
    buffer = np.zeros(total, np.uint8)

    def walk(t: int, b: int, loops: list[Any]) -> None:
        if loops:
            [(count, dt, db), *inner] = loops
            for i in range(count):
                walk(t + i * dt, b + i * db, inner)
        else:
            buffer[b * size : (b + 1) * size] = 1 + np.arange(t * size, (t + 1) * size) % 251

    for t, b, loops in places:
        walk(t, b, loops)
    return buffer.tobytes()


def test_rows_go_where_they_belong(engine: EnginePage) -> None:
    kinds = [
        [[0, 0, [[4, 64, 64], [2, 1, 32], [32, 2, 1]]]],
        [[0, 3, [[256, 1, 1]]], [5, 0, []], [7, 300, [[2, 10, 1]]]],
        [[255, 0, [[256, -1, 1]]]],
        [[0, 1, [[128, 1, 2]]], [128, 0, [[128, 1, 2]]]],
    ]
    cases: list[dict[str, Any]] = [
        {"places": places, "rows": 256, "size": size, "step": step}
        for places in kinds
        for size in (2, 3, 4, 6, 18)
        for step in (1, 7, 64, 1000)
    ]
    for case in cases:
        case["total"] = -(-310 * case["size"] // 16) * 16
    results = engine.run(PLACES, cases=cases)
    for case, result in zip(cases, results, strict=True):
        expected = place(case["places"], case["rows"], case["size"], case["total"])
        assert result.tobytes() == expected, case


def test_places_outside_are_refused(engine: EnginePage) -> None:
    bad = [
        [[0, 0, [[257, 1, 1]]]],
        [[0, 60, [[256, 1, 1]]]],
        [[0, 0, [[256, 1, -1]]]],
        [[0, 0, [[2**40, 0, 0]]]],
        [[0, 0, [[100_000, 0, 0], [100_000, 0, 0], [100_000, 0, 0]]]],
    ]
    cases = [{"places": places, "rows": 256, "size": 4, "step": 64, "total": 1024} for places in bad]
    assert engine.run(PLACES, cases=cases) == [None] * len(bad)
