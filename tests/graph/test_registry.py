"""Registries know which module declares what, without importing it: the tables must be true."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import volumetric.graph.operations.names as operations
from volumetric import layers
from volumetric.base import plugins
from volumetric.base.registry import Registry, modules_of
from volumetric.graph.operations import OPS
from volumetric.layers import LAYERS


def test_the_table_names_what_each_module_declares():
    package = operations.__name__.rpartition(".")[0]
    names = [name for declared in operations.DECLARED.values() for name in declared.split()]
    assert len(set(names)) == len(names)
    assert sorted(OPS) == sorted(names)
    for module, declared in operations.DECLARED.items():
        document = import_module(f"{package}.{module}").__doc__ or ""
        for name in declared.split():
            assert f"``{name}``" in document, f"{module} does not tell what {name} takes and gives"
            assert OPS[name].run.__module__ == f"{package}.{module}", name


def test_a_kind_is_its_class_in_small_letters():
    for kind, spec in LAYERS.items():
        if spec.__module__.startswith("volumetric.layers."):
            assert kind.replace("_", "") == spec.__name__.lower()
            assert getattr(layers, spec.__name__) is spec


def test_names_that_nothing_declares_are_not_there():
    assert "no_such_layer" not in LAYERS
    assert LAYERS.get("no_such_layer") is None
    with pytest.raises(KeyError, match="no_such_layer"):
        LAYERS["no_such_layer"]


def test_a_registry_imports_what_is_asked_for():
    loaded: list[str | None] = []
    registry: Registry[int] = Registry(loaded.append)
    registry["mine"] = 1
    assert registry["mine"] == 1
    assert registry.is_declared("mine")
    assert not registry.is_declared("other")
    assert loaded == []
    assert "other" not in registry
    assert list(registry) == ["mine"]
    assert loaded[0] == "other"
    assert set(loaded[1:]) == {None}
    del registry["mine"]
    assert not registry.is_declared("mine")
    assert modules_of("volumetric", {"rng": "generator"})("nothing") is None


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A package that registers, and says what was imported of it."""
    home = tmp_path / "a_package_of_things"
    home.mkdir()
    (home / "__init__.py").write_text("from volumetric.base.registry import Registry\nTHINGS: Registry[int]\n")
    for name, text in (("one", "THINGS['one'] = 1"), ("more", "THINGS['two'] = 2"), ("broken", "1 / 0")):
        (home / f"{name}.py").write_text(f"from a_package_of_things import THINGS\n{text}\n")
    entries = {
        "volumetric.things": ("one", "broken", "ours"),
        plugins.PLUGINS: ("more",),
    }
    module = {"ours": "one"}
    found = {
        group: tuple(EntryPoint(name, f"{home.name}.{module.get(name, name)}", group) for name in names)
        for group, names in entries.items()
    }
    monkeypatch.setattr(plugins, "_engine_entry_points", lambda: found)
    monkeypatch.setattr(plugins, "_begun", set())
    monkeypatch.syspath_prepend(str(tmp_path))
    yield home.name
    for name in [name for name in sys.modules if name.startswith(home.name)]:
        del sys.modules[name]


def test_a_name_imports_the_one_module_that_a_package_has_for_it(
    installed: str, caplog: pytest.LogCaptureFixture
) -> None:
    things: Registry[int] = Registry(group="volumetric.things", own={"ours": 0}, spelled=str.lower)
    vars(import_module(installed))["THINGS"] = things

    def imported() -> set[str]:
        return {name.rpartition(".")[2] for name in sys.modules if name.startswith(f"{installed}.")}

    assert things["ours"] == 0
    assert things.names() == ("ours", "one", "broken")
    assert not imported()
    assert things["ONE"] == 1
    assert imported() == {"one"}
    assert "broken" not in things  # and what none has an entry for may be in a module that has several
    assert imported() == {"one", "more"}
    assert "broken (a_package_of_things.broken) cannot be used: ZeroDivisionError" in caplog.text
    assert dict(things) == {"ours": 0, "one": 1, "two": 2}
    alone: Registry[int] = Registry(own={"ours": 0})
    assert "one" not in alone
    assert alone.names() == ("ours",)
