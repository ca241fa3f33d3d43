"""The folder of the engine as a package: what is in it, how large it is, and that it needs nothing else."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import volumetric

SITE = Path(volumetric.__file__).parent / "web" / "site"
MODULES = sorted(SITE.glob("*.js"))


def _gzipped(paths: list[Path]) -> int:
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in paths)


def test_what_a_page_loads_is_small() -> None:
    vendored = sorted((SITE / "vendor").glob("*.min.js"))
    assert _gzipped(MODULES) <= 40_000
    assert _gzipped(MODULES + vendored) <= 100_000
    assert len(vendored) == 2


def test_imports_stay_in_the_folder() -> None:
    for path in MODULES:
        text = path.read_text()
        for name in re.findall(r'(?:from|import)\s*\(?\s*"([^"]+)"', text):
            assert name.startswith("./"), (path.name, name)
            assert (SITE / name).is_file(), (path.name, name)
        assert not re.search(r"\b(eval|innerHTML|document\.write|new Function)\b", text), path.name


def test_the_package_is_complete() -> None:
    package = json.loads((SITE / "package.json").read_text())
    types = (SITE / "engine.d.ts").read_text()
    exported = re.findall(r"\b([A-Z]\w+Error)\b", (SITE / "engine.js").read_text().partition("} from")[0])
    assert package["version"] == volumetric.__version__
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
    assert names == {path.relative_to(SITE).as_posix() for path in SITE.rglob("*") if path.is_file()}
