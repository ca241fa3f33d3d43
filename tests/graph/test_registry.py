"""Registries know which module declares what, without importing it: the tables must be true."""

from __future__ import annotations

from importlib import import_module

import pytest

import volumetric.graph.operations.names as operations
from volumetric import layers
from volumetric.graph.operations import OPS
from volumetric.layers import LAYERS
from volumetric.registry import Registry, modules_of


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
        if spec.__module__.startswith("volumetric."):
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
    assert registry.declared("mine")
    assert not registry.declared("other")
    assert loaded == []
    assert "other" not in registry
    assert list(registry) == ["mine"]
    assert loaded[0] == "other"
    assert set(loaded[1:]) == {None}
    del registry["mine"]
    assert not registry.declared("mine")
    assert modules_of("volumetric", {"rng": "generator"})("nothing") is None
