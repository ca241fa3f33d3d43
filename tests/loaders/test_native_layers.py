"""The native checkpoint holds every layer in every numeric type, notices every changed byte, survives kill -9."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import volumetric
from tests.examples import CASES
from volumetric.base.errors import CheckpointError
from volumetric.builders import chain, sequential
from volumetric.dtypes import DTYPES, DType, Scheme
from volumetric.layers import Embedding
from volumetric.loaders.native_checkpoint import read_native, save_native
from volumetric.network import Network, Params, initialise

ROOT = Path(volumetric.__file__).parents[1]
KINDS = {
    "dense": "dense-tanh",
    "multi_head_attention": "qk-norm",
    "swiglu": "swiglu-bias",
    "rms_norm": "rms",
    "layer_norm": "layer-norm",
    "conv1d": "conv1d",
    "conv2d": "conv2d-everything",
    "conv3d": "conv3d",
    "rnn": "rnn",
    "lstm": "lstm",
    "conv_transpose1d": "conv-transpose1d",
    "conv_transpose2d": "conv-transpose2d-everything",
    "conv_transpose3d": "conv-transpose3d",
    "embedding": "embedding",
    "kmeans": "kmeans",
    "softmax": "softmax",
    "parallel": "filter-nested",
    "sequential": "sequential-named",
    "residual": "residual",
}


def network_of(name: str) -> Network:
    spec, shape = CASES[KINDS[name]]
    ids = isinstance(spec, Embedding)
    return chain([spec], () if ids else shape[1:], "int32" if ids else "float32")


def params_in(network: Network, dtype: DType) -> Params:
    params = initialise(network, 5)
    for key, spec in network.param_specs().items():
        if spec.packable:
            params[key].morph(Scheme.default(dtype))
            params[key].drop_master()
    return params


def content(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.iterdir()}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_every_numeric_type_is_exact_and_idempotent(kind: str, tmp_path: Path) -> None:
    network = network_of(kind)
    assert kind in {spec.kind for spec in network.layers.values()} or kind == "residual"
    for dtype in DTYPES:
        params, home = params_in(network, dtype), tmp_path / dtype.name
        save_native(home, network, params)
        again, stores, _ = read_native(home)
        assert again == network
        for key, store in params.items():
            expected, found = store.packed(), stores[key].packed()
            assert found.scheme == expected.scheme
            assert found.payload.tobytes() == expected.payload.tobytes()
            np.testing.assert_array_equal(stores[key].values(), store.values())
        before = content(home)
        save_native(home, again, stores)
        assert content(home) == before


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_stay_as_small_on_disk_as_their_type(dtype: DType, tmp_path: Path) -> None:
    network = sequential(1024, 512, hidden=(), bias=False)
    params = params_in(network, dtype)
    save_native(tmp_path / "m", network, params)
    size = (tmp_path / "m" / "weights.safetensors").stat().st_size
    scheme = Scheme.default(dtype)
    assert size == pytest.approx(scheme.nbytes((512, 1024)), rel=0.01, abs=1000)
    if dtype.name == "binary":
        assert 512 * 1024 * 4 / size == pytest.approx(32, rel=0.05)


def test_every_changed_byte_of_the_weights_is_noticed(tmp_path: Path) -> None:
    network = sequential(40, 3, hidden=(5,))
    save_native(tmp_path / "m", network, params_in(network, DTYPES[14]))
    path = tmp_path / "m" / "weights.safetensors"
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    draw = random.Random(3)
    for at in [start, len(whole) - 1, *(draw.randrange(start, len(whole)) for _ in range(20))]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << draw.randrange(8))]) + whole[at + 1 :])
        _, params, _ = read_native(tmp_path / "m")
        with pytest.raises(CheckpointError, match="has checksum"):
            [store.values() for store in params.values()]
        bad = [key for key, store in params.items() if _fails(store.packed)]
        assert len(bad) == 1  # and it is told again


def _fails(call) -> bool:
    try:
        call()
    except CheckpointError:
        return True
    return False


def test_a_structure_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    for name, network in (("a", sequential(4, 8, 3)), ("b", sequential(4, 8, 3, activation="tanh"))):
        save_native(tmp_path / name, network, initialise(network))
    (tmp_path / "a" / "network.json").replace(tmp_path / "b" / "network.json")
    with pytest.raises(CheckpointError, match="does not belong to"):
        read_native(tmp_path / "b")


SAVING = """
import sys
import numpy as np
from volumetric.builders import sequential
from volumetric.loaders.native_checkpoint import save_native
from volumetric.network import initialise
network = sequential(256, 64, hidden=(256,))
print("ready", flush=True)
for seed in range(1, 100_000):
    save_native(sys.argv[1], network, initialise(network, seed % 7))
"""
TRAINING = """
import sys
import numpy as np
from volumetric.builders import sequential
from volumetric.network import initialise
from volumetric.train import TrainConfig, train
network = sequential(64, 8, hidden=(64,))
draw = np.random.default_rng(0)
x, y = draw.normal(size=(64, 64)).astype(np.float32), draw.normal(size=(64, 8)).astype(np.float32)
begun = []
def tell(event):  # after the first update, which waits for kernels
    begun or print("ready", flush=True)
    begun.append(event)
train(network, initialise(network), (x, y), TrainConfig(epochs=100_000, checkpoint_every=1), checkpoints=sys.argv[1],
      resume=True, reporters=[tell])
"""


def kill_at_a_random_moment(code: str, target: Path, moment: float) -> None:
    with subprocess.Popen([sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(moment)
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)


@pytest.mark.thorough
def test_a_save_that_is_killed_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    draw = random.Random(1)
    network = sequential(256, 64, hidden=(256,))
    home = tmp_path / "m"
    save_native(home, network, initialise(network))
    for _ in range(5):
        kill_at_a_random_moment(SAVING, home, draw.uniform(0.01, 0.15))
        found = read_native(home)[1]
        match = [s for s in range(7) if _equal(found, initialise(network, s))]
        assert len(match) == 1


def test_a_crash_between_two_renames_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from volumetric.loaders import directory, open_model

    home, network = tmp_path / "m", sequential(4, 3)
    save_native(home, network, initialise(network))
    home.rename(tmp_path / ".m.0123456789ab.old")  # where a system without an exchange may crash
    assert open_model(home).network == network
    monkeypatch.setattr(directory, "exchange", lambda a, b: False)
    save_native(home, network, initialise(network, 1))
    assert _equal(read_native(home)[1], initialise(network, 1))
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_paths_are_exchanged_in_one_step_where_the_system_can(tmp_path: Path) -> None:
    from volumetric.loaders.directory import exchange

    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    if exchange(tmp_path / "a", tmp_path / "b"):
        assert (tmp_path / "a" / "b").read_text() == "b"
        assert (tmp_path / "b" / "a").read_text() == "a"
    assert not exchange(tmp_path / "a", tmp_path / "nothing")
    assert (tmp_path / "a").is_dir()


def _equal(a: Params, b: Params) -> bool:
    return all(np.array_equal(store.values(), b[key].values()) for key, store in a.items())


@pytest.mark.thorough
def test_training_that_is_killed_goes_on_from_a_whole_checkpoint(tmp_path: Path) -> None:
    from volumetric.train import CheckpointStore, read_checkpoint

    draw, updates = random.Random(2), [0]
    for _ in range(4):
        kill_at_a_random_moment(TRAINING, tmp_path / "run", draw.uniform(0.05, 0.3))
        for path in CheckpointStore(tmp_path / "run").paths():
            assert read_checkpoint(path).learner.updates > 0
        newest = CheckpointStore(tmp_path / "run").latest()
        if newest is not None:
            updates.append(read_checkpoint(newest).learner.updates)
    assert updates == sorted(updates)
    assert updates[-1] > 0
