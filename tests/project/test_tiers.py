"""The quick tier leaves out no kind of layer, operation, dtype, family, verb, endpoint or example."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.devices import FAST
from tests.graph.op_cases import OP_CASES, OPEN
from tests.loaders.test_family_devices import NAMES
from tests.parity.test_parity import KIND
from volumetric.cli import COMMANDS
from volumetric.dtypes import DTYPES
from volumetric.graph.operations import OPS
from volumetric.layers import LAYERS
from volumetric.serve.app import PATHS

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def chosen(request: pytest.FixtureRequest) -> list[Any]:
    """The tests that this run has chosen, where it looked at all files."""
    options = vars(request.config.option)
    if any(options.get(name) for name in ("file_or_dir", "keyword", "markexpr", "lf", "ignore")):
        pytest.skip("this run is of some tests alone")
    return request.session.items


def cases(chosen: list[Any], function: str) -> Iterator[dict[str, Any]]:
    """Parameters of the chosen cases of a test, given as ``file::function`` below tests/."""
    file, _, name = function.partition("::")
    found = [item for item in chosen if item.path == TESTS / file and item.originalname == name]
    assert found, f"{function} is not there"
    return (item.callspec.params for item in found)


def words(chosen: list[Any], folder: str) -> set[str]:
    """Strings and names of attributes in the source of the chosen tests of a folder."""
    functions = {item.function for item in chosen if item.path.is_relative_to(TESTS / folder)}
    nodes = [node for one in functions for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(one))))]
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return strings | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_every_kind_of_layer_runs_on_a_device_with_kernels(chosen: list[Any]) -> None:
    swept = list(cases(chosen, "parity/test_parity.py::test_shapes"))
    assert {KIND[case["case"]] for case in swept if case["name"] in FAST} == set(LAYERS)
    assert {case["name"] for case in swept} == set(FAST)


def test_every_operation_runs_on_a_device_with_kernels(chosen: list[Any]) -> None:
    for device in ("cpu", "gpu"):
        test = f"{device}_graph/test_ops.py::test_an_operation_agrees_with_the_interpreter"
        assert {OP_CASES[case["name"]].op for case in cases(chosen, test)} == set(OPS) - OPEN


def test_every_dtype_runs_on_a_device_with_kernels(chosen: list[Any]) -> None:
    for test in ("test_types_as_stored", "test_types_forward_and_backward"):
        stored = list(cases(chosen, f"parity/test_parity.py::{test}"))
        assert {case["dtype"] for case in stored if case["name"] in FAST} == set(DTYPES)


def test_every_family_runs_on_a_device_with_kernels(chosen: list[Any]) -> None:
    test = "loaders/test_family_devices.py::test_logits_and_greedy_tokens_are_those_of_transformers"
    assert {case["name"] for case in cases(chosen, test) if case["device"] in FAST} == set(NAMES)


def test_every_verb_and_every_endpoint_is_called(chosen: list[Any]) -> None:
    assert set(COMMANDS) <= words(chosen, "cli")
    asked = words(chosen, "serve")  # clients have an attribute for an endpoint: `client.embeddings.create()`
    assert [path for path in PATHS if path.split("/")[-1] not in asked and not any(path in one for one in asked)] == []


def test_every_example_runs(chosen: list[Any]) -> None:
    examples = {path.stem for path in (TESTS.parent / "examples").glob("*.toml")}
    evolved = cases(chosen, "project/test_examples.py::test_an_example_runs_a_little")
    named = words(chosen, "project") | {str(case["path"]) for case in evolved}
    assert {name for name in examples if not any(name in word for word in named)} == set()
