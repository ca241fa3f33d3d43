"""Old paths of modules and names: they work, are the same objects, and warn."""

from __future__ import annotations

import subprocess
import sys
import warnings
from contextlib import nullcontext
from importlib import import_module

import pytest

import volumetric
from volumetric.base.moved_modules import MODULES, NAMES, STAY, new_path
from volumetric.base.renamed_modules import RENAMED


@pytest.mark.parametrize("path", sorted(MODULES))
def test_a_module_is_found_under_its_old_path(path: str) -> None:
    sys.modules.pop(path, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module(path.rpartition(".")[0])
    now = MODULES[path]
    warns = pytest.warns(DeprecationWarning, match=f"{path} is {now} now")
    with nullcontext() if path in STAY else warns:
        assert import_module(path) is import_module(now)
    assert import_module(path).__spec__.name == now  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize("package", sorted(RENAMED))
def test_a_module_is_found_under_its_former_name(package: str) -> None:
    for pair in RENAMED[package].split():
        former, present = (f"volumetric.{package}.{name}" for name in pair.split(":"))
        sys.modules.pop(former, None)
        with pytest.warns(DeprecationWarning, match=f"{former} is {present} now"):
            assert import_module(former) is import_module(present)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_is_found_where_it_was(name: str) -> None:
    package, _, last = name.rpartition(".")
    module, _, present = NAMES[name].rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"{name} is {NAMES[name]} now"):
        there = getattr(import_module(package), last)
    assert there is getattr(import_module(module), present)


def test_what_has_not_moved_has_no_new_path() -> None:
    assert new_path("volumetric.train") is None
    assert new_path("numpy.random") is None
    assert new_path("volumetric.runtimes") is None
    assert new_path("volumetric.runtime.plan") == "volumetric.run.plan"


def test_modules_of_an_old_package_are_not_loaded_twice() -> None:
    text = """
import warnings; warnings.simplefilter("ignore")
from volumetric.layers.program.spec import Program
from volumetric.program.layer.program_layer import Program as Now
assert Program is Now
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_what_nobody_has_is_still_missing() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = import_module("volumetric.layers").Nothing
    with pytest.raises(ModuleNotFoundError, match=r"volumetric\.run\.nothing"):
        import_module("volumetric.runtime.nothing")


def test_the_face_knows_modules_that_have_moved() -> None:
    sys.modules.pop("volumetric.runtime", None)
    if "runtime" in vars(volumetric):
        del volumetric.runtime  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.warns(DeprecationWarning, match=r"volumetric\.runtime is volumetric\.run now"):
        before = volumetric.runtime  # pyright: ignore[reportAttributeAccessIssue]  (an old name)
    assert before is volumetric.run
