"""Every module of exports, of all variants: it compiles by Tint, the compiler of Chromium, and by naga, without f16."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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
from volumetric.web.variants import VARIANTS

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
    """Modules of exports of each kind in all variants, and of further families of language models."""
    options: dict[str, Any] = {"variants": tuple(VARIANTS)}
    home, sources = tmp_path_factory.mktemp("modules"), dict[str, None]()
    networks = {name: make() for name, make in NETWORKS.items()} | {"language": tiny_llama(), "ticks": machine(8)}
    for name, one in networks.items():
        params = initialise(getattr(one, "network", one), 1)
        export_network(one, home / name, params=params, context=32, **options)
    for family in ("gpt_oss_mxfp4", "gemma3", "mamba2", "llama4", "gpt2"):
        export_network(open_model(ROOT / "tests" / "fixtures" / "hf_tiny" / family), home / family, context=64)
    export_network(ROOT / "tests" / "fixtures" / "hf_encoders" / "bert_judge", home / "encoder", context=16, **options)
    images = sequential((1, 8, 8), Conv2d(1, 4, 3, activation="relu"), Flatten(), LayerNorm(144), 10)
    config = TrainConfig(loss=CrossEntropy(), optimiser=AdamW(), clip=1.0)
    export_network(LearnerNetwork(images, initialise(images, 1), config), home / "learner", **options)
    export_network(NeatPopulation(), home / "population", **options)
    kinds = set()
    for folder in home.iterdir():
        network = json.loads((folder / "network.json").read_text(encoding="utf-8"))
        if len(network["variants"]) == len(VARIANTS):
            kinds.add(network["kind"])
        sources |= dict.fromkeys(network["modules"])
    assert kinds == {"rows", "sequences", "stream", "ticks", "language", "encoder", "population", "learner"}
    return list(sources)


@pytest.mark.thorough
def test_no_module_needs_float16(texts: list[str]) -> None:
    """Weights of 16 bits are unpacked from words, by every GPU."""
    directives = {line for text in texts for line in text.splitlines() if line.startswith(("enable", "requires"))}
    assert directives == {DIRECTIVE.rstrip()}
    assert any("unpack2x16float" in text for text in texts)
    assert not [text for text in texts if re.search(r"\bf16\b|[0-9]h\b", text)]


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
