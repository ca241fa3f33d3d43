"""Every module of exports compiles: by Tint, the compiler of Chromium, and by naga."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clocked.machines import machine
from tests.devices import narrowed
from tests.gpu.dawn_driver import ROOT, environment_or_skip
from tests.networks import tiny_llama
from tests.web.networks import NETWORKS
from volumetric import sequential
from volumetric.layers import Conv2d, Flatten, LayerNorm
from volumetric.loaders.loaded_model import open_model
from volumetric.network import initialise
from volumetric.train import AdamW, CrossEntropy, TrainConfig
from volumetric.web import export_network
from volumetric.web.learner_network import LearnerNetwork
from volumetric.web.neat_population import NeatPopulation

TINT = """
import json, sys
from volumetric.devices.gpu.webgpu.dawn import DAWN

[adapter] = DAWN.adapters("Null")
device = DAWN.open(adapter, DAWN.features(adapter) & {"subgroups"})
refused, texts = [], json.load(open(sys.argv[1]))
for text in [*texts, "fn main() -> u32 { return 1f; }"]:
    try:
        DAWN.create_module(device, "module", text)
    except Exception as error:
        refused.append(DAWN.cause(str(error)))
assert len(refused) > 0 and len(texts) > 50, "it compiles"
sys.exit("\\n".join(refused[:-1]) or None)
"""
DIRECTIVE = "enable subgroups;\n"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Modules of one export of each kind, of all variants."""
    home, texts = tmp_path_factory.mktemp("modules"), dict[str, None]()
    networks = {name: make() for name, make in NETWORKS.items()} | {"language": tiny_llama(), "ticks": machine(8)}
    for name, one in networks.items():
        params = initialise(getattr(one, "network", one), 1)
        export_network(one, home / name, params=params, context=32)
    for family in ("gpt_oss_mxfp4", "gemma3", "mamba2", "llama4", "gpt2"):
        export_network(open_model(ROOT / "tests" / "fixtures" / "hf_tiny" / family), home / family, context=64)
    export_network(ROOT / "tests" / "fixtures" / "hf_encoders" / "bert_judge", home / "encoder", context=16)
    images = sequential((1, 8, 8), Conv2d(1, 4, 3, activation="relu"), Flatten(), LayerNorm(144), 10)
    config = TrainConfig(loss=CrossEntropy(), optimiser=AdamW(), clip=1.0)
    export_network(LearnerNetwork(images, initialise(images, 1), config), home / "learner")
    export_network(NeatPopulation(), home / "population")
    for folder in home.iterdir():
        texts |= dict.fromkeys(json.loads((folder / "network.json").read_text(encoding="utf-8"))["modules"])
    return list(texts)


@pytest.mark.thorough
def test_tint_compiles_every_module(texts: list[str], tmp_path: Path) -> None:
    variables = environment_or_skip()
    (tmp_path / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    command = [sys.executable, "-c", TINT, str(tmp_path / "texts.json")]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_naga_compiles_every_module(texts: list[str]) -> None:
    """It knows subgroups without the directive."""
    context = narrowed("native").context
    for text in texts:
        if DIRECTIVE not in text or "subgroups" in context.features:
            context.webgpu.create_module(context.device, "module", text.replace(DIRECTIVE, ""))


@pytest.mark.thorough
def test_exports_replay_on_dawn() -> None:
    """The text as it is, with its directives, and bindings by the rules of browsers."""
    variables = environment_or_skip()
    wanted = "mlp or (greedy_tokens and 9)"
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "-k", wanted]
    done = subprocess.run(
        [*command, "tests/web/test_replay.py"], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
