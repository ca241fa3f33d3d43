"""Searching for cuts: what is tried is legal, what is found is kept, and what a file says is not trusted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.gpu.harness import Kernel, aligned, assert_close
from tests.networks import tiny_llama
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.autotune import search_tunings
from volumetric.devices.gpu.kernels import matmul
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.matmul import MatmulShape, matvec_tuning, neighbour_tunings, tune_matvec
from volumetric.devices.gpu.kernels.matrix_tiles import candidates, choose_cut, is_legal
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.matrix_search import search_cuts
from volumetric.devices.gpu.tuning_cache import TuningCache
from volumetric.network import initialise
from volumetric.run import RunOptions, lower

LARGE = Caps(subgroup_size=32, max_workgroup=1024, max_shared=49152)
SHAPE = MatmulShape(k=4096, n=11008, format=FORMATS["int4:g32"], gated=True)


def test_neighbours_differ_in_one_choice_and_are_legal() -> None:
    start = tune_matvec(SHAPE, SHAPE.n, LARGE)
    around = neighbour_tunings(SHAPE, start, LARGE)
    assert len(around) >= 4
    for cut in around:
        choices = ("team", "rows", "unroll", "workgroup")
        changed = {name for name in choices if getattr(cut, name) != getattr(start, name)}
        assert changed in ({"rows"}, {"unroll"}, {"workgroup"}, {"team"}, {"team", "workgroup"})
        assert 32 <= cut.team <= cut.workgroup <= 1024
        assert cut.chunk * cut.chunks >= SHAPE.format.pieces(SHAPE.k)


def test_found_cuts_outlive_the_process(tmp_path: Path) -> None:
    first = TuningCache("some GPU, driver 1", tmp_path)
    default = tune_matvec(SHAPE, SHAPE.n, LARGE)
    chosen = neighbour_tunings(SHAPE, default, LARGE)[0]
    assert first.tuning_of(SHAPE, SHAPE.n, LARGE) == default
    first.remember(SHAPE, SHAPE.n, chosen)
    first.save()
    assert TuningCache("some GPU, driver 1", tmp_path).tuning_of(SHAPE, SHAPE.n, LARGE) == chosen
    assert TuningCache("some GPU, driver 2", tmp_path).tuning_of(SHAPE, SHAPE.n, LARGE) == default
    assert TuningCache("some GPU, driver 1", tmp_path).tuning_of(SHAPE, SHAPE.n - 4, LARGE) == default


@pytest.mark.parametrize(
    "spoilt",
    ["", "[]", "{", {}, {"team": 0}, {"rows": 3}, {"workgroup": 1 << 20}, {"unroll": -1}, {"lanes": 2}, {"rows": "2"}],
)
def test_a_spoilt_file_means_defaults(tmp_path: Path, spoilt: object) -> None:
    made = TuningCache("a GPU", tmp_path)
    default = tune_matvec(SHAPE, SHAPE.n, LARGE)
    made.remember(SHAPE, SHAPE.n, default)
    made.save()
    (path,) = tmp_path.iterdir()
    if isinstance(spoilt, str):
        path.write_text(spoilt)
    else:
        (key,) = kept = json.loads(path.read_text())
        path.write_text(json.dumps({key: (kept[key] | spoilt) if spoilt else 7}))
    assert TuningCache("a GPU", tmp_path).tuning_of(SHAPE, SHAPE.n, LARGE) == default


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    made = TuningCache("a GPU", tmp_path / "file")
    made.remember(SHAPE, SHAPE.n, tune_matvec(SHAPE, SHAPE.n, LARGE))
    made.save()
    assert "cannot be saved" in caplog.text


@pytest.mark.thorough
def test_a_search_times_neighbours(native_device: GpuDevice) -> None:
    shape = MatmulShape(
        k=1024, n=64, format=FORMATS["int8:g32"], norm="rms", norm_weight=True, bias=True, residual=True
    )
    caps = native_device.context.caps
    before = native_device.context.allocated
    times = search_tunings(native_device.context, shape, 64, tune_matvec(shape, 64, caps), cold_bytes=1)
    assert len(times) > 1
    assert all(0 < seconds < 1 for seconds in times.values())
    assert native_device.context.allocated == before


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("unroll", [1, 3])
def test_every_cut_computes_the_same(native_kernel: Kernel, rng: np.random.Generator, rows: int, unroll: int) -> None:
    shape = MatmulShape(k=700, n=37, format=FORMATS["float16"])
    held, weights = native_kernel.weights(rng.standard_normal((37, 700)).astype(np.float32), "float16")
    x = rng.standard_normal((1, 700)).astype(np.float32)
    team = native_kernel.caps.subgroup_size or 8
    cut = matvec_tuning(shape, native_kernel.caps, team=team, rows=rows, workgroup=4 * team, unroll=unroll)
    y = native_kernel.empty(1, 40)
    dispatch = matmul.matvec(shape, native_kernel.caps, first=0, units=37, tuning=cut)
    native_kernel.run((dispatch, {**held, "x": native_kernel.array(aligned(x)), "y": y}))
    assert_close(native_kernel.read(y, 1, 37), x @ weights.T)


def test_a_software_adapter_is_not_tuned(native_device: GpuDevice) -> None:
    if not native_device.context.software:
        return
    network = tiny_llama()
    executable = native_device.compile(lower(network), initialise(network, 0), RunOptions(context=32))
    before = native_device.context.tunings
    executable.tune()
    assert native_device.context.tunings is before


UNITS = Caps(subgroup_size=32, max_workgroup=1024, max_shared=49152, matrix_units=True)


@pytest.mark.parametrize("rows", [16, 64, 512])
@pytest.mark.parametrize("gated", [False, True])
def test_cuts_for_matrix_units_are_legal(rows: int, gated: bool) -> None:
    shape = MatmulShape(k=4096, n=4096, format=FORMATS["float16"], gated=gated)
    cuts = candidates(shape, rows, UNITS)
    assert choose_cut(shape, rows, UNITS) in cuts
    assert len(cuts) >= 3
    assert all(is_legal(cut.tile, UNITS) and cut.splits * cut.tile.k <= 4096 for cut in cuts)


def test_cuts_for_matrix_units_outlive_the_process(tmp_path: Path) -> None:
    first = TuningCache("some GPU", tmp_path)
    default = first.cut_of(SHAPE, SHAPE.n, 64, UNITS)
    other = next(cut for cut in candidates(SHAPE, 64, UNITS) if cut != default)
    first.remember_cut(SHAPE, SHAPE.n, 64, other)
    first.save()
    again = TuningCache("some GPU", tmp_path)
    assert again.cut_of(SHAPE, SHAPE.n, 64, UNITS) == again.cut_of(SHAPE, SHAPE.n, 128, UNITS) == other
    assert again.cut_of(SHAPE, SHAPE.n, 16, UNITS) == choose_cut(SHAPE, 16, UNITS)
    again.remember_cut(SHAPE, SHAPE.n, 512, other)
    assert again.cut_of(SHAPE, SHAPE.n, 1024, UNITS) == other
    assert again.cut_of(SHAPE, SHAPE.n, 4096, UNITS) == choose_cut(SHAPE, 4096, UNITS)
    assert again.tuning_of(SHAPE, SHAPE.n, UNITS) == tune_matvec(SHAPE, SHAPE.n, UNITS)


@pytest.mark.parametrize(
    "spoilt", [{"m": 0}, {"n": 48}, {"k": 1 << 20}, {"slices": 3}, {"splits": 0}, {"ahead": 7}, {"rows": "16"}, None]
)
def test_a_spoilt_cut_for_matrix_units_means_the_default(tmp_path: Path, spoilt: dict[str, object] | None) -> None:
    made = TuningCache("a GPU", tmp_path)
    made.remember_cut(SHAPE, SHAPE.n, 64, candidates(SHAPE, 64, UNITS)[-1])
    made.save()
    (path,) = tmp_path.iterdir()
    (key,) = kept = json.loads(path.read_text())
    path.write_text(json.dumps({key: (kept[key] | spoilt) if spoilt else []}))
    assert TuningCache("a GPU", tmp_path).cut_of(SHAPE, SHAPE.n, 64, UNITS) == choose_cut(SHAPE, 64, UNITS)


@pytest.mark.thorough
def test_a_search_times_cuts_for_matrix_units(native_device: GpuDevice) -> None:
    """Emulated fragments run the candidates, too."""
    shape = MatmulShape(k=128, n=32, format=FORMATS["int8:g32"], residual=True)
    before = native_device.context.allocated
    times = search_cuts(native_device.context, shape, 32, 16, cold_bytes=1)
    assert all(0 < seconds < 1 for seconds in times.values())
    assert native_device.context.allocated <= before + 256  # which all unused bindings share
