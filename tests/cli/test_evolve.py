"""The verbs evolve and merge from end to end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from volumetric.cli import main
from volumetric.evolution import Genome, Population
from volumetric.loaders import open_model

ROOT = Path(volumetric.__file__).parents[1]
LLAMA = ROOT / "tests" / "fixtures" / "hf_tiny" / "llama"


@pytest.fixture
def run(capsys, tmp_path):
    def call(text: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
        path = tmp_path / "job.toml"
        path.write_text(text)
        code = main(["evolve", str(path), "--json", *arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else {}, err

    return call


def test_an_empty_file_solves_xor_and_keeps_everything(run, tmp_path):
    code, told, err = run("")
    assert (code, told["reason"], told["solved"]) == (0, "solved", True)
    assert "species" in err
    home = tmp_path / "job"
    genome = Genome.load(home / "champion.json")
    assert genome.activate(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]))[:, 0].round().tolist() == [0, 1, 1, 0]
    assert open_model(told["model"]).network.input_shape == (2,)
    lines = [json.loads(line) for line in (home / "history.jsonl").read_text().splitlines()]
    evaluated = [line["generation"] for line in lines if line["event"] == "Evaluated"]
    assert evaluated == list(range(told["generations"]))
    assert len((home / "history.csv").read_text().splitlines()) == 1 + told["generations"]
    assert (home / "config.toml").read_text() == ""


def test_a_run_is_not_overwritten_but_resumed(run, tmp_path, capsys):
    settings = 'seed = 3\npopulation = 20\nproblem = { kind = "parity", bits = 3 }\n'
    assert run(settings, "--generations", "4")[0] == 0
    code, _, err = run(settings)
    assert code == 2
    assert "--resume" in err
    assert main(["evolve", "--resume", str(tmp_path / "job"), "--generations", "9", "--json"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    whole = run(settings, "--generations", "9", "--out", str(tmp_path / "whole"))[1]
    assert (resumed["generations"], resumed["fitness"]) == (9, whole["fitness"])
    for name in ("checkpoint.npz", "history.jsonl", "history.csv", "champion.json"):
        assert (tmp_path / "job" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_end_of_a_run_says_why_and_what_continues_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text('seed = 3\npopulation = 20\nproblem = { kind = "parity", bits = 3 }\n')

    def lines_of(*arguments: str) -> list[str]:
        assert main(["evolve", *arguments, "--quiet"]) == 0
        return capsys.readouterr().out.splitlines()

    first = lines_of("job.toml", "--generations", "1", "--out", "runs/a b")
    assert first[0].startswith("ended after 1 generation, as generations = 1, fitness ")
    assert first[1:3] == [
        "runs/a b: checkpoint, history, champion.json",
        "runs/a b/champion: the champion as a model",
    ]
    assert first[3] == "to continue: volumetric evolve --resume 'runs/a b' --generations 2"
    assert lines_of("--resume", "runs/a b") == first  # the flag is remembered
    more = lines_of("--resume", "runs/a b", "--generations", "3")
    assert more[0].startswith("ended after 3 generations, as generations = 3, ")
    assert more[1:3] == first[1:3]
    patient = lines_of("--resume", "runs/a b", "--generations", "30", "--set", "budget.patience=1")
    assert ", as budget.patience = 1 is spent, " in patient[0]
    assert patient[3].endswith("--resume 'runs/a b' --set budget.patience=2")
    monkeypatch.chdir("runs")  # the directory may be called from elsewhere
    assert lines_of("--resume", "a b")[1].startswith("a b: checkpoint")


def test_a_history_that_is_ahead_of_the_checkpoint_is_cut(run, tmp_path, capsys):
    run("population = 20\ncheckpoint_every = 3\n", "--generations", "3")
    home = tmp_path / "job"
    before = (home / "history.jsonl").read_text()
    (home / "history.jsonl").write_text(before + '{"event": "Evaluated", "generation": 3}\n{"event": "Eval')
    assert main(["evolve", "--resume", str(home), "--generations", "4", "--json"]) == 0
    lines = [json.loads(line) for line in (home / "history.jsonl").read_text().splitlines()]
    assert [line["generation"] for line in lines if line["event"] == "Evaluated"] == [0, 1, 2, 3]
    assert "best" in lines[-1]


@pytest.mark.parametrize(
    ("text", "wrong", "hint"),
    [
        ("popultion = 3", "popultion", "population"),
        ('problem = "xo"', "'xo'", "xor"),
        ("[species]\ntarjet = 3", "species: unknown key 'tarjet'", "target"),
        ('problem = { kind = "gym" }', "id must be given", ""),
        ('problem = { kind = "parity", bit = 3 }', "'bit'", "bits"),
        ('problem = { kind = "function", name = "cosin" }', "cosin", "sin"),
        ("[budget]\nseconds = -1", "budget.seconds", ""),
        ("timeout = 3.0", "hangs", "workers"),
        ('algorithm = "neat"', "algorithm", ""),
        ("generations = 0", "generations", ""),
        ("x = ", "not valid TOML", ""),
        ('problem = { kind = "table" }', "npz or csv", ""),
        ('algorithm = "classic"\n[network]\nbuilder = "cnn"', "network", 'algorithm = "grid"'),
        ('[network]\nbuilder = "mlp"\n[train]\nepochs = 3', "network", "volumetric train FILE"),
    ],
)
def test_what_is_wrong_is_named(run, text, wrong, hint):
    code, told, err = run(text)
    assert (code, told) == (1, {})
    assert wrong in err
    assert hint in err


def test_a_table_from_a_file_and_a_budget(run, tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 3))
    lines = ["a,b,c,kind", *(f"{r[0]},{r[1]},{r[2]},{'yes' if r[0] > r[1] else 'no'}" for r in x)]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    text = (
        'population = 30\nproblem = { kind = "table", csv = "data.csv", classes = true }\n[budget]\nevaluations = 100\n'
    )
    told = run(text)[1]
    assert (told["reason"], told["generations"]) == ("evaluations", 3)
    assert open_model(told["model"]).network.shapes[max(open_model(told["model"]).network.layers)][-1] == 2
    np.savez(tmp_path / "data.npz", inputs=x, targets=x[:, :1] ** 2)
    told = run(
        'population = 30\nproblem = { kind = "table", npz = "data.npz" }\n',
        "--generations",
        "3",
        "--out",
        str(tmp_path / "npz"),
    )[1]
    assert told["generations"] == 3


@pytest.mark.thorough
def test_grids_in_worker_processes_are_the_serial_run(run, tmp_path):
    text = 'algorithm = "grid"\npopulation = 8\nproblem = { kind = "spirals", make_options = { samples = 60 } }\n'
    text += "[network]\noptions = { hidden = [4] }\n"
    alone = run(text, "--generations", "2", "--out", str(tmp_path / "alone"))[1]
    shared = run(text, "--generations", "2", "--workers", "1", "--out", str(tmp_path / "shared"))[1]
    assert alone["fitness"] == shared["fitness"]
    names = [(tmp_path / name / "checkpoint.npz").read_bytes() for name in ("alone", "shared")]
    assert names[0] == names[1]
    assert open_model(shared["model"]).network.input_shape == (2,)


def test_training_within_a_life_helps(run, tmp_path):
    text = (
        'algorithm = "elites"\npopulation = 4\n[network]\noptions = {{ hidden = [8] }}\n[problem]\nkind = "spirals"\n'
    )
    text += "make_options = {{ samples = 90 }}\noptions = {{ epochs = {} }}\n"
    plain = run(text.format(0), "--generations", "1", "--out", str(tmp_path / "plain"))[1]
    trained = run(text.format(15), "--generations", "1", "--out", str(tmp_path / "trained"))[1]
    assert trained["fitness"] > plain["fitness"]


def test_gymnasium_by_name(run):
    told = run('population = 10\n[problem]\nkind = "gym"\nid = "Acrobot-v1"\nmax_steps = 20\n', "--generations", "2")[1]
    assert told["fitness"] == -20


@pytest.mark.thorough
def test_pictures_of_both_kinds_of_runs(run, tmp_path, capsys):
    run("population = 20\n", "--generations", "3")
    grid = 'algorithm = "grid"\npopulation = 6\n[network]\noptions = { hidden = [4] }\n'
    run(grid, "--generations", "2", "--out", str(tmp_path / "grid"))
    for home in ("job", "grid"):
        assert main(["evolve", "plot", str(tmp_path / home), "--format", "svg"]) == 0
        names = [Path(line).name for line in capsys.readouterr().out.splitlines()]
        assert names == ["fitness.svg", "species.svg", "champion.svg", "similarity.svg"]
        assert all((tmp_path / home / name).read_text().lstrip().startswith("<?xml") for name in names)
    assert main(["evolve", "plot", str(tmp_path / "none")]) == 1
    assert main(["evolve", "plot"]) == 2
    assert main(["evolve"]) == 2
    assert main(["evolve", "--resume", str(tmp_path)]) == 2


@pytest.mark.thorough
def test_ctrl_c_keeps_a_checkpoint_from_which_the_run_goes_on(tmp_path, capsys):
    (tmp_path / "job.toml").write_text(
        'population = 60\nproblem = { kind = "parity", bits = 4 }\ngenerations = 100000\n'
    )
    command = [sys.executable, "-m", "volumetric", "evolve", str(tmp_path / "job.toml"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    checkpoint = tmp_path / "job" / "checkpoint.npz"
    for _ in range(300):
        if checkpoint.exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    told = json.loads(out)
    assert told["reason"] == "stopped"
    assert Population.load(checkpoint).generation == told["generations"] - 1
    more = str(told["generations"] + 1)
    assert main(["evolve", "--resume", str(tmp_path / "job"), "--generations", more, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["generations"] == int(more)


def test_a_run_computes_where_the_flag_or_the_file_says(tmp_path, capsys):
    (tmp_path / "job.toml").write_text('population = 20\ndevice = "reference"\n')
    command = ["evolve", str(tmp_path / "job.toml"), "--generations", "2", "--json"]
    assert main([*command, "--workers", "1"]) == 1
    assert "workers and reference exclude each other" in capsys.readouterr().err
    found = []
    for name in ("reference", "cpu", "gpu"):
        assert main([*command, "--device", name, "--out", str(tmp_path / name)]) == 0
        found.append(json.loads(capsys.readouterr().out)["fitness"])
    assert found == pytest.approx([found[0]] * 3, rel=1e-5)
    assert main([*command, "--device", "cuda"]) == 2


def test_two_models_are_merged_into_one_that_generates(tmp_path, capsys):
    assert main(["merge", str(LLAMA), str(LLAMA), str(tmp_path / "merged"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["layers"]
    assert all(layer["reason"] == "" for layer in report)
    merged, original = open_model(str(tmp_path / "merged")), open_model(str(LLAMA))
    for key, store in original.params.items():
        np.testing.assert_allclose(merged.params[key].values(), store.values(), rtol=1e-2)
    model = volumetric.load(str(tmp_path / "merged"), device="reference")
    assert len(model.generate([1, 2, 3], max_tokens=4, ignore_eos=True).token_ids) == 4


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text",
    [
        'problem = "xor"\n[mutation]\nadd_node = 0.3\n',
        'algorithm = "grid"\nnetwork.options = {hidden=[4]}\n[problem]\nkind = "spirals"\nmake_options.samples=30\n',
    ],
    ids=["classic", "grid"],
)
def test_several_objectives_give_a_front_that_goes_on(run, tmp_path, capsys, text):
    text = 'search = "nsga2"\npopulation = 8\n' + text
    code, told, _ = run(text, "--generations", "2")
    assert (code, told["generations"]) == (0, 2)
    home = tmp_path / "job"
    assert main(["evolve", "--resume", str(home), "--generations", "4", "--json"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    whole = run(text, "--generations", "4", "--out", str(tmp_path / "whole"))[1]
    assert resumed["front"] == whole["front"]
    assert (home / "history.jsonl").read_text() == (tmp_path / "whole" / "history.jsonl").read_text()
    table = json.loads((home / "front" / "front.json").read_text())
    assert [row["objectives"] for row in table] == whole["front"]
    assert all(size < 0 for _, size in whole["front"])
    assert all(
        (home / "front" / f"{row['genome']}.json").exists() or (home / "front" / str(row["genome"])).is_dir()
        for row in table
    )
    assert main(["evolve", "plot", str(home), "--format", "svg"]) == 0
    assert (home / "front.svg").read_text().lstrip().startswith("<?xml")


def test_a_fitness_function_of_several_numbers(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "made_pair.py").write_text(
        "def pair(genome):\n    return genome.activate([0.0, 1.0])[0], -genome.hidden\n"
    )
    (tmp_path / "job.toml").write_text(
        'search = "nsga2"\nfitness = "made_pair:pair"\npopulation = 8\ngenerations = 2\n'
    )
    assert main(["evolve", str(tmp_path / "job.toml")]) == 0
    out, err = capsys.readouterr()
    assert "the front:" in out
    assert "points on the front" in err
