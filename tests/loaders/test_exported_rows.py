"""Rows that compiled programs export: written, read, put back in, and refused where a file is not what it was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.examples.programs import KNOWN, TIMED
from volumetric import Coord
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.loaders import load_exported, read_exported, save_exported
from volumetric.loaders.exported_rows import MANIFEST
from volumetric.network import initialise

ROWS = {"known": np.arange(8, dtype=np.float32).reshape(2, 4), "lore": -np.ones((3, 4), np.float32)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_exported(tmp_path / "x", ROWS)
    return tmp_path / "x"


def test_rows_are_read_as_they_were_written_and_put_back_in(folder: Path) -> None:
    """The same rows make the same bytes; others take their place as a whole."""
    found = read_exported(folder)
    assert found.keys() == ROWS.keys()
    for name, rows in ROWS.items():
        np.testing.assert_array_equal(found[name], rows)
    assert sorted(path.name for path in folder.iterdir()) == [MANIFEST, "known.safetensors", "lore.safetensors"]
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    save_exported(folder, ROWS)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    network = KNOWN.program.network()
    params = initialise(network)
    made = load_exported(folder, network, params)
    for key, store in made.items():
        region = key.removeprefix("0.0.0.0/regions.").removesuffix(".rows")
        np.testing.assert_array_equal(store.values(), ROWS.get(region, params[key].values()))


def test_a_file_that_is_not_what_it_was_is_refused(folder: Path) -> None:
    path, manifest = folder / "lore.safetensors", folder / MANIFEST
    whole, text = path.read_bytes(), manifest.read_text()
    for data, message in (
        (whole[:-1], "SHA-256"),
        (whole[:40], "truncated"),
        (whole[:-1] + b"\x01", "SHA-256"),
        (whole + b"\0" * 10_000, "truncated, or another file"),
        (b"", "truncated"),
    ):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=rf"lore\.safetensors: .*{message}"):
            read_exported(folder)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"lore\.safetensors"):
        read_exported(folder)
    path.write_bytes(whole)
    good = json.loads(text)
    lore = good["regions"]["lore"]
    for told, message in (
        (text[: len(text) // 2], "invalid manifest of exported rows"),
        ("[" * 100_000, "invalid manifest of exported rows"),
        ('{"a": 1}', "invalid manifest of exported rows"),
        (json.dumps(good | {"version": 2}), "version 2"),
        (json.dumps(good | {"format": "x"}), "format 'x'"),
        (json.dumps(good | {"regions": {"../lore": lore}}), "cannot be called"),
        (json.dumps(good | {"regions": {"lore": lore | {"shape": [0, 4]}}}), r"shape \[0, 4\]"),
        (json.dumps(good | {"regions": {"lore": lore | {"shape": [3]}}}), "invalid manifest of exported rows"),
        (json.dumps(good | {"regions": {"lore": lore | {"shape": [4, 3]}}}), r"F32 of shape \[4, 3\]"),
        (json.dumps(good | {"regions": {"lore": lore | {"shape": [2**40, 2**40]}}}), "truncated"),
    ):
        manifest.write_text(told)
        with pytest.raises(CheckpointError, match=message):
            read_exported(folder)
    manifest.unlink()
    with pytest.raises(CheckpointError, match=MANIFEST):
        read_exported(folder)


def test_rows_that_have_no_place_are_refused(folder: Path, tmp_path: Path) -> None:
    network = KNOWN.program.network()
    params = initialise(network)
    save_exported(tmp_path / "wide", {"lore": np.ones((4, 4), np.float32)})
    with pytest.raises(CheckpointError, match=r"region 'lore' has shape \[4, 4\], the program expects \[3, 4\]"):
        load_exported(tmp_path / "wide", network, params)
    save_exported(tmp_path / "other", {"knwon": ROWS["known"]})
    with pytest.raises(CheckpointError, match=r"no constant 'knwon'[\s\S]*did you mean 'known'"):
        load_exported(tmp_path / "other", network, params)
    with pytest.raises(SpecError, match="cannot choose a program"):
        load_exported(folder, network, params, Coord(3))
    timed = TIMED.program.network()
    with pytest.raises(CheckpointError, match="known constants: none"):
        load_exported(folder, timed, initialise(timed))
    with pytest.raises(CheckpointError, match="do not fit"):
        load_exported(folder, network, initialise(timed))


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    for rows, message in (
        ({"a/b": ROWS["lore"]}, "cannot be called"),
        ({"a": ROWS["lore"], "A": ROWS["lore"]}, "case"),
    ):
        with pytest.raises(SpecError, match=message):
            save_exported(tmp_path / "x", rows)
    assert not (tmp_path / "x").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot create"):
        save_exported(tmp_path / "file", ROWS)
