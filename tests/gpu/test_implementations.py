"""Which WebGPU implementation opens a GPU, and what is said of the other one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.devices import narrowed
from volumetric.base.errors import DeviceError
from volumetric.devices.gpu import adapters, implementation_choice
from volumetric.devices.gpu.adapters import GpuAdapter, choose_adapter, describe, ranked_adapters
from volumetric.devices.gpu.implementation_choice import ImplementationChoice, choose_implementation
from volumetric.devices.gpu.implementation_speed import ImplementationSpeed, measure_speed, prompt_product
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.matmul import MatmulShape
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.webgpu.dawn import _library_stderr
from volumetric.devices.gpu.webgpu.webgpu_implementation import NAMES, VARIABLE, webgpu

EQUAL = ImplementationSpeed(token=1e-3, prompt=1e-2)


@pytest.fixture(autouse=True)
def by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """No implementation is named by hand, and both have a version."""
    monkeypatch.delenv(VARIABLE, raising=False)
    known = {name: SimpleNamespace(version="1", name=name) for name in NAMES}
    monkeypatch.setattr(implementation_choice, "webgpu", known.__getitem__)


def card(*offers: str, kind: str = "DiscreteGPU", number: int = 0) -> GpuAdapter:
    info = {"device": "A card", "description": f"driver {number}", "adapter_type": kind}
    offer = SimpleNamespace(info=info, features=frozenset[str](), limits={})
    return GpuAdapter(dict.fromkeys(offers, offer), {name: "too old" for name in NAMES if name not in offers})


class Stopwatch:
    """Measures what it was told, and counts how often."""

    def __init__(self, **speeds: ImplementationSpeed | DeviceError) -> None:
        self.speeds: Mapping[str, ImplementationSpeed | DeviceError] = speeds
        self.count = 0

    def __call__(self, adapter: GpuAdapter, name: str) -> ImplementationSpeed:
        self.count += 1
        speed = self.speeds[name]
        if isinstance(speed, DeviceError):
            raise speed
        return speed


def chosen(tmp_path: Path, speed: ImplementationSpeed | DeviceError, number: int = 0) -> ImplementationChoice:
    stopwatch = Stopwatch(wgpu=EQUAL, dawn=speed)
    return choose_implementation(card(*NAMES, number=number), measure=stopwatch, directory=tmp_path)


def test_the_faster_one_opens_the_gpu(tmp_path: Path) -> None:
    faster = ImplementationSpeed(token=0.5e-3, prompt=2e-3)
    choice = chosen(tmp_path, faster)
    assert choice.name == "dawn"
    assert choice.reason == "measured: dawn is 2.00 times as fast as wgpu for tokens, 5.00 times for prompts"
    assert chosen(tmp_path, DeviceError("it fails"), 1) == ImplementationChoice(
        "wgpu", "the other one fails on this GPU"
    )


@pytest.mark.parametrize(
    ("token", "prompt", "name"),
    [
        (0.99, 0.99, "wgpu"),  # 1 % is noise
        (1.1, 0.2, "dawn"),  # matrix units outweigh tokens that take a tenth more
        (1.2, 0.01, "wgpu"),  # nothing outweighs tokens at 0.83 of the speed
        (0.97, 1.1, "wgpu"),
        (0.8, 2.0, "dawn"),  # nor does it when the first one has them
        (0.9, 0.9, "dawn"),
    ],
)
def test_both_kinds_of_work_count(tmp_path: Path, token: float, prompt: float, name: str) -> None:
    speed = ImplementationSpeed(token=token * EQUAL.token, prompt=prompt * EQUAL.prompt)
    assert chosen(tmp_path, speed).name == name


def test_it_is_measured_once_for_a_gpu_and_its_driver(tmp_path: Path) -> None:
    stopwatch = Stopwatch(wgpu=EQUAL, dawn=EQUAL)
    for number in (0, 0, 1, 0):
        choose_implementation(card(*NAMES, number=number), measure=stopwatch, directory=tmp_path)
    assert stopwatch.count == 4
    for damaged in ("{", "[]", '{"wgpu": 1}', '{"wgpu": {"token": 0, "prompt": 1}}', '{"wgpu": {"token": "x"}}'):
        for path in tmp_path.iterdir():
            path.write_text(damaged)
        choose_implementation(card(*NAMES), measure=stopwatch, directory=tmp_path)
    assert stopwatch.count == 14
    paths = sorted(tmp_path.iterdir())
    assert [json.loads(path.read_text()).keys() for path in paths if len(path.read_text()) > 60] == [set(NAMES)]


def test_nothing_is_measured_where_nothing_is_opened_or_there_is_no_choice(tmp_path: Path) -> None:
    stopwatch = Stopwatch()
    assert choose_implementation(card(*NAMES), directory=tmp_path).name == "wgpu"
    assert choose_implementation(card("dawn"), measure=stopwatch).name == "dawn"
    assert choose_implementation(card(*NAMES, kind="CPU"), measure=stopwatch).name == "wgpu"
    assert stopwatch.count == 0


def test_the_variable_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    both, old = card(*NAMES), card("wgpu")
    for value in ("dawn", " Dawn ", "DAWN"):
        monkeypatch.setenv(VARIABLE, value)
        assert choose_implementation(both) == ImplementationChoice("dawn", f"{VARIABLE} names it")
    assert choose_adapter([old, both], None) == 1
    assert choose_adapter([old, both], "0") == 0, "names of devices stay"
    with pytest.raises(DeviceError, match=f"{VARIABLE}=dawn does not offer A card: too old") as error:
        choose_implementation(old)
    assert error.value.hint == f"unset {VARIABLE}, or set it to wgpu"
    with pytest.raises(DeviceError, match=f"{VARIABLE}=dawn: it offers no GPU here: too old"):
        choose_adapter([old], None)
    monkeypatch.setenv(VARIABLE, "vulkan")
    with pytest.raises(DeviceError, match=f"{VARIABLE}: there is no WebGPU implementation 'vulkan'") as error:
        choose_implementation(both)
    assert error.value.hint == "known: wgpu, dawn"


def listed(*models: int) -> list[Any]:
    kinds = {1: "DiscreteGPU", 2: "CPU"}
    return [
        SimpleNamespace(info={"device": f"model {m}", "description": f"{i}", "adapter_type": kinds[m]})
        for i, m in enumerate(models)
    ]


def test_a_gpu_has_one_place_whoever_offers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = {"wgpu": listed(2, 1, 1), "dawn": listed(1, 1)}
    monkeypatch.setattr(
        adapters, "webgpu", lambda name: SimpleNamespace(adapters=lambda backend: offered[name], remarks="no extension")
    )
    monkeypatch.setenv(VARIABLE, "dawn")  # it need not be installed
    cards = ranked_adapters()
    numbers = [[offer.info["description"] for offer in card.offers.values()] for card in cards]
    assert numbers == [["1", "0"], ["2", "1"], ["0"]]
    assert cards[2].refusals == {"dawn": "its driver is not enough for it: no extension"}


def test_what_cannot_be_loaded_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(name: str) -> Any:
        def no_adapters(backend: str) -> list[Any]:
            raise DeviceError(f"{name} cannot be loaded")

        return SimpleNamespace(adapters=(lambda backend: listed(1)) if name == "wgpu" else no_adapters, remarks="")

    monkeypatch.setattr(adapters, "webgpu", failing)
    monkeypatch.setattr(adapters.importlib.util, "find_spec", lambda name: None)
    assert "pip install" in ranked_adapters()[0].refusals["dawn"]
    monkeypatch.setattr(adapters.importlib.util, "find_spec", lambda name: object())
    assert ranked_adapters()[0].refusals == {"dawn": "dawn cannot be loaded"}
    monkeypatch.setenv(VARIABLE, "dawn")
    with pytest.raises(DeviceError, match="dawn cannot be loaded"):
        ranked_adapters()


def test_both_are_described() -> None:
    adapter = ranked_adapters()[0]
    name = next(iter(adapter.offers))
    details = describe(adapter, 0, name, "why").details
    assert details["webgpu"] == f"{name}: why"
    assert details["implementations"].keys() == set(NAMES)
    for other, facts in details["implementations"].items():
        assert set(facts) == {"unusable"} or facts["version"] == webgpu(other).version


@pytest.mark.parametrize("units", [False, True])
def test_prompts_are_measured_as_they_run(units: bool) -> None:
    """By what a product of many rows takes on that GPU."""
    shape = MatmulShape(k=64, n=64, format=FORMATS["float16"])
    caps = Caps(subgroup_size=32, max_workgroup=1024, max_shared=49152, matrix_units=units)
    kernels = [dispatch.kernel for dispatch in prompt_product(shape, 512, caps, halves=units)]
    assert kernels == (["halve_rows", "matrix_gemm"] if units else ["gemm"])


@pytest.mark.thorough
@pytest.mark.parametrize("halves", [None, True])
def test_a_gpu_can_be_measured(halves: bool | None) -> None:
    """As it is, and with halves, whose fragments are emulated where there are no matrix units."""
    context = narrowed("native").context
    measure_speed(context, width=64, rows=16, seconds=0.0, halves=halves)
    before = context.allocated
    speed = measure_speed(context, width=64, rows=16, seconds=0.01, halves=halves)
    assert 0 < speed.token < 10
    assert 0 < speed.prompt < 10
    assert context.allocated == before


def test_what_dawn_writes_to_stderr_is_kept_and_the_rest_passes(capfd: pytest.CaptureFixture[str]) -> None:
    with _library_stderr() as lines:
        os.write(2, b"Warning: no extension.\n - While looking\n    at Here (file.cpp:1)\n\nof another thread\n")
    assert lines == ["no extension."]
    assert capfd.readouterr().err == "of another thread\n"
