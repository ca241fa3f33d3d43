"""Old paths of modules and names: they work, are the same objects, and warn."""

from __future__ import annotations

import subprocess
import sys
import warnings
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import volumetric
from volumetric.base.moved_modules import MODULES, NAMES, STAY, new_path
from volumetric.base.renamed_modules import RENAMED
from volumetric.generate.params import SamplingParams
from volumetric.generate.scheduling.jobs import Job, Ticket
from volumetric.generate.scheduling.limits import Limits
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.run import SequenceRows


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


JOB = Job(prompt=[1], params=SamplingParams())


@pytest.mark.parametrize(
    ("call", "former", "present", "value"),
    [
        (partial(Job, prompt=[1], params=SamplingParams()), "held", "session_state", None),
        (partial(Ticket, JOB, 0, 0.0), "seated", "started", True),
        (partial(SequenceRows, None, np.zeros(1, np.int32)), "wanted", "output_rows", "none"),
        (Limits, "seats", "slots", 3),
    ],
)
def test_a_field_is_set_by_its_former_name(call: partial[Any], former: str, present: str, value: object) -> None:
    name = call.func.__name__ if isinstance(call, partial) else call.__name__
    with pytest.warns(DeprecationWarning, match=rf"{name}\({former}=…\) is {name}\({present}=…\) now") as warned:
        built = call(**{former: value})
    assert getattr(built, present) == value
    assert warned[0].filename == __file__


def test_a_function_takes_an_argument_by_its_former_name() -> None:
    work = GraphBuilder()
    x = work.input("x", (3,))
    seeds = {work.unary(x, "tanh"): work.constant(np.ones(3))}
    with pytest.warns(DeprecationWarning, match=r"differentiate\(wanted=…\) is differentiate\(wrt=…\) now"):
        assert differentiate(work, seeds, wanted=[x]).keys() == {x}  # pyright: ignore[reportCallIssue]  (a former name)
    with pytest.raises(TypeError, match="differentiate\\(\\) got 'wrt' twice, once as 'wanted'"):
        differentiate(work, seeds, wrt=[x], wanted=[x])  # pyright: ignore[reportCallIssue]
