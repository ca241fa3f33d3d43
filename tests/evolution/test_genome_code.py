"""Genomes as Python and C compute what the reference activates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.codegen.test_source_code import CC, run_source
from tests.evolution.test_as_network import evolved
from volumetric.base.errors import UnsupportedError
from volumetric.cli import main
from volumetric.evolution.activate import Activator, activate_reference
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS
from volumetric.evolution.genome import Genome
from volumetric.evolution.genome_code import save_genome_source


def wild(recurrent: bool, rng: np.random.Generator) -> Genome:
    """The largest of some evolved genomes, with any activation and aggregation."""
    member = max(evolved(), key=lambda each: each.hidden)
    nodes = member.nodes.copy()
    nodes["activation"] = np.arange(len(nodes)) % len(ACTIVATIONS)
    nodes["aggregation"] = rng.integers(len(AGGREGATIONS), size=len(nodes))
    interface = replace(member.interface, recurrent=recurrent, steps=3 if recurrent else 1)
    return replace(member, interface=interface, nodes=nodes)


@pytest.mark.parametrize("ending", [".py", ".c"])
@pytest.mark.parametrize("recurrent", [False, True])
def test_a_genome_computes_what_the_reference_activates(
    ending: str, recurrent: bool, tmp_path: Path, rng: np.random.Generator
) -> None:
    if ending == ".c" and CC is None:
        pytest.skip("no C compiler")
    genome = wild(recurrent, rng)
    x = rng.normal(size=(6, 3))
    save_genome_source(tmp_path / f"net{ending}", genome)
    got = np.array(run_source(tmp_path / f"net{ending}", x), np.float64)
    activator = Activator(genome)
    expected = np.stack([activator(row) for row in x]) if recurrent else activate_reference(genome, x)
    np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-7)


def test_every_activation_and_aggregation(tmp_path: Path, rng: np.random.Generator) -> None:
    genome = wild(False, rng)
    x = rng.normal(size=(4, 3))
    scope: dict[str, object]
    for i, name in enumerate((*ACTIVATIONS, *AGGREGATIONS)):
        nodes = genome.nodes.copy()
        nodes["activation"], nodes["aggregation"] = i % len(ACTIVATIONS), i % len(AGGREGATIONS)
        member = replace(genome, nodes=nodes)
        save_genome_source(tmp_path / "net.py", member)
        scope = {"__name__": "net"}
        exec(compile((tmp_path / "net.py").read_text(), name, "exec"), scope)
        got = [scope["predict"](row.tolist()) for row in x]  # pyright: ignore[reportCallIssue]  (of the file)
        np.testing.assert_allclose(got, activate_reference(member, x), rtol=1e-9, atol=1e-9, err_msg=name)


def test_the_command_line_takes_the_file_of_a_champion(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    genome = wild(True, rng)
    genome.save(tmp_path / "champion.json")
    assert main(["convert", str(tmp_path / "champion.json"), str(tmp_path / "net.py")]) == 0
    assert "a genome" in capsys.readouterr().out
    assert "class State" in (tmp_path / "net.py").read_text()
    with pytest.raises(UnsupportedError, match=r"must end in \.py or \.c"):
        save_genome_source(tmp_path / "net.txt", genome)
