"""Models in archives of packages: unpacked once, and nothing of a hostile archive gets out."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from volumetric.base.errors import CheckpointError
from volumetric.loaders import open_model
from volumetric.loaders.model_location import resolve

TINY = Path(__file__).parents[1] / "fixtures" / "hf_encoders" / "sentences_mean"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of an importable package, whose code says that it ran; the cache is empty."""
    home = tmp_path / "site" / "zipped_model"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("raise RuntimeError('the package ran')\n")
    monkeypatch.syspath_prepend(home.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return home


def pack(path: Path, edit: Callable[[zipfile.ZipFile], None] = lambda archive: None, below: str = "") -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(TINY.rglob("*")):
            if file.is_file():
                archive.write(file, below + file.relative_to(TINY).as_posix())
        edit(archive)


@pytest.mark.parametrize("below", ["", "all/of/"])
def test_a_model_in_an_archive_is_unpacked_once(package: Path, below: str) -> None:
    pack(package / "model.zip", below=below)
    (package / "other.zip").write_bytes(b"no archive")
    location = resolve("pkg:zipped_model")
    assert location.name == "zipped_model"
    names = {path.relative_to(location.directory).as_posix() for path in location.directory.rglob("*.json")}
    assert names == {path.relative_to(TINY).as_posix() for path in TINY.rglob("*.json")}
    weights = location.directory / "model.safetensors"
    before = weights.stat().st_ino
    assert resolve("pkg:zipped_model") == location
    assert weights.stat().st_ino == before
    assert open_model("pkg:zipped_model").sentences is not None
    weights.write_bytes(weights.read_bytes()[:-1])  # a cache that was cut is made again
    resolve("pkg:zipped_model")
    assert weights.stat().st_size == (TINY / "model.safetensors").stat().st_size


def test_a_package_is_found_by_the_name_that_it_is_installed_by(package: Path) -> None:
    pack(package / "model.zip")
    facts = package.parent / "zipped_model_of_us-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: zipped-model-of-us\nVersion: 1.0\n")
    (facts / "RECORD").write_text("zipped_model/__init__.py,,\nzipped_model/model.zip,,\n")
    assert resolve("pkg:zipped_model_of_us").directory == resolve("pkg:zipped_model").directory
    with pytest.raises(CheckpointError, match="no package 'zipped_model_of_them'"):
        resolve("pkg:zipped_model_of_them")


def _write(name: str, data: bytes = b"{}", mode: int = 0) -> Callable[[zipfile.ZipFile], None]:
    def edit(archive: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, data)

    return edit


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_write("../outside.json"), "leads outside the archive"),
        (_write("/outside.json"), "leads outside the archive"),
        (_write("a\\..\\outside.json"), "leads outside the archive"),
        (_write("a/b/c/d/e.json"), "leads outside the archive"),
        (_write("link.json", b"/etc/passwd", stat.S_IFLNK | 0o777), "leads outside the archive"),
        (_write("bomb.json", bytes(66_000_000)), "is refused"),
        (lambda archive: [_write(f"{i}.json")(archive) for i in range(1_001)], "more than 1000"),
        (lambda a: [_write(f"two/{n}")(a) for n in ("config.json", "x.safetensors")], "2 directories with a config"),
    ],
)
def test_hostile_archives_are_refused(
    package: Path, tmp_path: Path, edit: Callable[[zipfile.ZipFile], None], message: str
) -> None:
    pack(package / "model.zip", edit)
    with pytest.raises(CheckpointError, match=message):
        resolve("pkg:zipped_model")
    assert not list(tmp_path.glob("cache/**/*.safetensors"))
    assert not (tmp_path / "outside.json").exists()


def test_damaged_archives_leave_nothing(package: Path, tmp_path: Path) -> None:
    pack(package / "model.zip")
    data = (package / "model.zip").read_bytes()
    spoilt = bytearray(data)
    spoilt[len(data) // 2] ^= 0xFF  # inside of the weights: the checksum tells
    for broken in (data[: len(data) // 2], bytes(spoilt), b""):
        (package / "model.zip").write_bytes(broken)
        with pytest.raises(CheckpointError, match=r"damaged|no GGUF"):
            resolve("pkg:zipped_model")
        assert not list(tmp_path.glob("cache/**/*.safetensors"))


def test_several_archives_are_named(package: Path) -> None:
    pack(package / "one.zip")
    pack(package / "two.zip")
    with pytest.raises(CheckpointError, match=r"several archives: one.zip, two.zip"):
        resolve("pkg:zipped_model")
