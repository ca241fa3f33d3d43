"""What stands where a model file should: pipes, devices, names that no file can have, more layers than tensors."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.tiny import TINY, copy
from volumetric.base.errors import CheckpointError
from volumetric.layers import Dense, RMSNorm
from volumetric.loaders import archs, open_model
from volumetric.loaders.generation_config import read_generation
from volumetric.loaders.hf_config import MAX_LAYERS, Config
from volumetric.loaders.regular_file import open_regular
from volumetric.network.grid import Coord, Link
from volumetric.network.wiring import follow_shared, wire


def make(kind: str, path: Path) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as here:
            here.bind(f"{short}/s")  # such names have 100 bytes at most
            Path(f"{short}/s").rename(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a thing of POSIX")
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf", "model.safetensors.index.json", "network.json"])
@pytest.mark.timeout(20)
def test_only_regular_files_are_read(kind: str, name: str, tmp_path: Path) -> None:
    directory = copy("llama", tmp_path)
    (directory / "model.safetensors").unlink()
    make(kind, directory / name)
    with pytest.raises(CheckpointError, match=f"it is a (named )?{kind}"):
        open_model(str(directory / name))
    with pytest.raises(CheckpointError):
        open_model(str(directory))


def test_ids_that_no_token_has_are_none() -> None:
    """Configurations of the first Llama models say -1 for a padding token that they do not have."""
    found = read_generation([{"pad_token_id": -1, "bos_token_id": 40}], [-1, 3], 40, "x")
    assert (found.pad_id, found.bos_id, found.eos_ids) == (None, None, (3,))


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="it is a directory"):
        open_regular(tmp_path)
    with pytest.raises(CheckpointError, match="No such file"):
        open_regular(tmp_path / "none")


@pytest.mark.parametrize("name", ["a" * 5000, "a" * 300 + ".safetensors", "\ud800", "a\0b", "."])
def test_names_that_no_file_has(name: str, tmp_path: Path) -> None:
    directory = copy("llama", tmp_path)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(CheckpointError, match=r"plain file name|does not exist") as caught:
        open_model(str(directory))
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("family", ["gpt_neox", "gpt2", "llama"])
def test_more_layers_than_tensors_are_refused_before_they_are_built(family: str, tmp_path: Path) -> None:
    key = "n_layer" if family == "gpt2" else "num_hidden_layers"
    directory = copy(family, tmp_path, **{key: MAX_LAYERS})
    with pytest.raises(CheckpointError, match=f"{key} is {MAX_LAYERS}, but the weights have only 2. tensors"):
        open_model(str(directory))


class _Reads:
    """Links that count how often they are gone through."""

    def __init__(self, links: list[Link]) -> None:
        self.links, self.passes = links, 0

    def __iter__(self) -> Any:
        self.passes += 1
        return iter(self.links)


def test_wiring_goes_through_the_links_a_fixed_number_of_times() -> None:
    layers = {Coord(z): RMSNorm(num_features=4) for z in range(50)}
    links = _Reads([Link(kind="activation", source=Coord(0), target=Coord(z)) for z in range(2, 50)])
    wires = wire(layers, links, frozenset())  # pyright: ignore[reportArgumentType]  (anything that can be iterated)
    assert links.passes == 2
    assert [w.inputs[0].coord for w in wires[2:]] == [Coord(0)] * 48


@pytest.mark.thorough
def test_long_chains_of_shared_weights_end_at_one_owner() -> None:
    count = 20_000
    layers = {Coord(z): Dense(in_features=2, out_features=2, bias=False) for z in range(count)}
    links = [Link(kind="shared", source=Coord(z), target=Coord(z + 1)) for z in range(count - 1)]
    ends = follow_shared(layers, tuple(reversed(links)))
    assert len(ends) == count - 1
    assert set(ends.values()) == {"0.0.0.0/weight"}


def test_all_tiny_models_have_more_tensors_than_layers() -> None:
    config = Config(json.loads((TINY / "llama" / "config.json").read_text()), "x", 2)
    assert len(archs.build(config).network.layers) > 2
