"""The folder of the engine as a package: what is in it, how large it is, and that it needs nothing else."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from posixpath import dirname, join, normpath

import pytest

import volumetric

SITE = Path(volumetric.__file__).parent / "web" / "site"
_IMPORT = re.compile(r'\b(?:from|import)\s*"([^"]+)"')
_LAZY_IMPORT = re.compile(r'\bimport\("\./([^"]+)"\)')
_PAGES = {
    "numbers": ("engine.js", "worker.js", "lane_probe.js", "calls.js", "streams.js"),
    "ticks": ("engine.js", "worker.js", "lane_probe.js", "ticks.js"),
    "language": ("engine.js", "worker.js", "lane_probe.js", "text.js", "language.js"),
    "encoder": ("engine.js", "worker.js", "lane_probe.js", "calls.js", "text.js", "encoder.js"),
}
"""Network → what its page imports, and what the engine imports for it."""
_LEARNING_ENTRIES = ("learner.js", "neat/population.js")
"""What the engine imports for networks that learn and populations that evolve."""
_SOURCE_ENTRIES = ("gguf/model_source.js", "stored_files.js")
"""What the engine imports for GGUF files, and for files that stay in the browser."""


def modules_of(entries: tuple[str, ...]) -> list[Path]:
    """Return the engine's own modules that some import: the page's are in the same folder."""
    names, rest = set[str](), list(entries)
    while rest:
        name = rest.pop()
        if name not in names and not name.startswith("vendor/"):
            names.add(name)
            rest += [normpath(join(dirname(name), other)) for other in _IMPORT.findall((SITE / name).read_text())]
    return [SITE / name for name in sorted(names)]


MODULES = modules_of(tuple(dict.fromkeys(name for entries in _PAGES.values() for name in entries)))
LEARNING = [path for path in modules_of(_LEARNING_ENTRIES) if path not in MODULES]
SOURCES = [path for path in modules_of(_SOURCE_ENTRIES) if path not in MODULES]


def _gzipped(paths: list[Path]) -> int:
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in paths)


def test_what_a_page_loads_is_small() -> None:
    vendored = sorted((SITE / "vendor").glob("*.min.js"))
    for network, entries in _PAGES.items():
        assert _gzipped(modules_of(entries)) <= 40 * 1024, network
    assert _gzipped(LEARNING) <= 20 * 1024
    assert _gzipped(MODULES + LEARNING + vendored) <= 100 * 1024
    assert _gzipped(SOURCES) <= 20 * 1024
    assert _gzipped([*modules_of(_PAGES["language"]), *SOURCES, *vendored]) <= 100 * 1024
    assert len(vendored) == 2


def test_imports_stay_in_the_folder() -> None:
    for path in MODULES + LEARNING + SOURCES:
        text = path.read_text()
        for name in _IMPORT.findall(text):
            assert name.startswith(("./", "../")), (path.name, name)
            assert (path.parent / name).resolve().is_relative_to(SITE.resolve()), (path.name, name)
            assert (path.parent / name).is_file(), (path.name, name)
        for name in _LAZY_IMPORT.findall(text):
            assert (path.parent / name).is_file(), (path.name, name)
        assert not re.search(r"\b(eval|innerHTML|document\.write|new Function)\b", text), path.name


def test_bundlers_can_follow_the_imports() -> None:
    """They see only literal addresses, and one form of a worker's."""
    lazy = (SITE / "lazy_modules.js").read_text()
    assert all(f'"{name}": () => import("./{name}")' in lazy for name in _LAZY_IMPORT.findall(lazy))
    assert 'new Worker(new URL("./worker.js", import.meta.url), {' in (SITE / "connections.js").read_text()
    for path in MODULES + LEARNING + SOURCES:
        assert not re.search(r"\bimport\(\s*new URL\b", path.read_text()), path.name


def test_the_package_is_complete() -> None:
    package = json.loads((SITE / "package.json").read_text())
    types = (SITE / "engine.d.ts").read_text()
    exported = re.findall(r"\b([A-Z]\w+Error)\b", (SITE / "engine.js").read_text().partition("} from")[0])
    assert package["version"] == volumetric.__version__
    names = sorted(path.relative_to(SITE).as_posix() for path in MODULES + LEARNING + SOURCES)
    assert package["files"] == [*names, "engine.d.ts", "vendor"]
    assert {"LICENSE.jinja", "LICENSE.tokenizers"} <= {path.name for path in (SITE / "vendor").iterdir()}
    assert all(f"export class {name}" in types for name in exported)
    for method in re.findall(r"^  (?:async )?(\w+)\(.*\) {$", (SITE / "engine.js").read_text(), re.MULTILINE):
        assert method in ("constructor", "toString") or f"  {method}(" in types, method


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_packs_it(tmp_path: Path) -> None:
    packed = subprocess.run(
        ["npm", "pack", "--json", "--offline", "--pack-destination", tmp_path],
        cwd=SITE,
        capture_output=True,
        check=True,
    )
    names = {one["path"] for one in json.loads(packed.stdout)[0]["files"]}
    vendored = {path.relative_to(SITE).as_posix() for path in (SITE / "vendor").iterdir()}
    modules = {path.relative_to(SITE).as_posix() for path in MODULES + LEARNING + SOURCES}
    assert names == modules | vendored | {"README.md", "engine.d.ts", "package.json"}
