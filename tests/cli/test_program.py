"""The verb program, and inspect of a program."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from volumetric.builders.sequential import chain
from volumetric.cli import main
from volumetric.layers import Dense
from volumetric.loaders import load_exported, open_model, read_exported, save_native
from volumetric.network import initialise
from volumetric.program import Canvas, Edge, In, Out, Program, Region, autowire, read_program, save_program
from volumetric.program import compile as compile_program
from volumetric.program.layer.program_layer import Program as Layer

FIXTURES = Path(__file__).parent.parent / "fixtures" / "programs"
PROGRAM = Program(
    Canvas(
        1,
        (8, 8),
        64,
        {
            "eye": Region(((0, 4), (0, 4)), family="observation"),
            "belief": Region(((0, 4), (4, 8)), clock="err.prediction > 0.25"),
            "err": Region(((4, 8), (4, 5)), family="residual", carrier="residual"),
            "act": Region(((4, 8), (5, 8)), family="action"),
        },
    ),
    [*autowire(), Edge(reads="eye", writes="act", when="every(2)", lag=2)],
    {"pixels": In("eye", 192), "motor": Out("act", 6)},
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    save_program(tmp_path / "x.program.json", PROGRAM)
    return str(tmp_path / "x.program.json")


def test_a_program_that_can_be_run_is_told_so(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["program", "check", path]) == 0
    out = capsys.readouterr().out
    assert f"{path}: 4 regions, {len(PROGRAM.edges)} edges, 2 ports" in out
    assert re.search(r"^[\d,]+ parameters \([\d.]+ KiB\)$", out, re.MULTILINE)
    assert "it can run" in out


def test_all_problems_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "y.program.json"
    save_program(path, replace(PROGRAM, edges=(Edge(reads="act", writes="eye", when="eye.peak > 1"),)))
    assert main(["program", "check", str(path)]) == 1
    out = capsys.readouterr().out
    assert "problem: edge 'eye<act#0': when: eye.peak > 1: region 'eye' has no meter" in out
    assert "problem: output 'motor' depends on no input" in out
    assert main(["inspect", str(path)]) == 0
    assert "problem: edge 'eye<act#0'" in capsys.readouterr().out
    assert main(["program", "check", str(path), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 2
    save_program(path, replace(PROGRAM, edges=(*PROGRAM.edges, Edge(reads="act", writes="eye", options={"depth": 2}))))
    assert main(["program", "check", str(path)]) == 1
    assert "depth" in capsys.readouterr().out
    path.write_text(path.read_text().replace('"width"', '"widht"'))
    assert main(["program", "check", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        f"error: {path}: $.canvas: unknown key 'widht'",
        "hint: did you mean 'width'?",
    ]


def test_two_programs_are_compared(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = str(tmp_path / "b.program.json")
    save_program(other, replace(PROGRAM, heads=8, edges=PROGRAM.edges[:-1]))
    assert main(["program", "diff", path, path]) == 0
    assert capsys.readouterr().out == "equal\n"
    assert main(["program", "diff", path, other]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1:3] == ["! ~ program: heads default → 8", "! - edge act<eye#0"]
    assert all(line.startswith("! parameter edges.act<eye#0.") for line in out[3:])
    assert main(["program", "diff", path, other, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "conflicts"
    assert told["changes"][0] == {"of": "program", "name": "", "field": "heads", "after": 8, "conflict": True}


def test_a_file_of_another_package_is_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = json.loads((FIXTURES / "by_hand.json").read_text())["program"]
    source, out = tmp_path / "canvas.json", tmp_path / "x.program.json"
    source.write_text(json.dumps(given))
    assert main(["program", "import", str(source), "-o", str(out), "--heads", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "slots persist" in captured.err
    assert read_program(out).heads == 2
    assert main(["program", "import", str(source), "--heads", "2", "--no-operators", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert Program.from_json(captured.out).edges[3].write == "add"
    source.write_text("{}")
    assert main(["program", "import", str(source)]) == 1
    assert str(source) in capsys.readouterr().err


def test_a_program_is_exported(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "canvas.json"
    assert main(["program", "export", path, "-o", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "lost: port 'pixels'" in captured.err
    assert json.loads(out.read_text())["layout"]["d_model"] == 64
    assert main(["program", "export", path, "--quiet"]) == 0
    assert capsys.readouterr().out == out.read_text()


@pytest.mark.thorough
def test_a_program_is_trained_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    regions = {"eye": Region(((0, 1), (0, 1)), family="observation"), "mind": Region(((0, 1), (1, 3)))}
    ports = {"x": In("eye", 3), "y": Out("mind", 2)}
    save_program("x.program.json", Program(Canvas(1, (1, 3), 4, regions), autowire(), ports))
    x = np.random.default_rng(0).normal(size=(8, 4, 3)).astype(np.float32)
    np.savez("rows.npz", inputs=x, targets=x[..., :2].cumsum(1))
    settings = """
        [network]
        file = "x.program.json"
        [data]
        npz = "rows.npz"
        [train]
        epochs = 1
        loss = "mse"
    """
    Path("t.toml").write_text(settings)
    assert main(["train", "t.toml", "--device", "reference", "--quiet"]) == 0
    np.savez("ports.npz", **{"seen": x, "targets.y": x[..., :2].cumsum(1)})  # the same arrays, by port
    by_port = settings.replace('"rows.npz"', '"ports.npz"\n        inputs = { x = "seen" }')
    Path("u.toml").write_text(by_port)
    assert main(["train", "u.toml", "--device", "reference", "--quiet"]) == 0
    [one, other] = (sorted(Path(run).glob("model/*.safetensors")) for run in "tu")
    assert len(one) == 1
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    Path("v.toml").write_text(by_port.replace("x =", "z ="))
    capsys.readouterr()
    assert main(["train", "v.toml", "--device", "reference", "--quiet"]) == 1
    assert "the network has no input 'z'" in capsys.readouterr().err
    np.savez("new.npz", input=x[0])
    capsys.readouterr()
    assert main(["run", "t/model", "--in", "new.npz", "--device", "reference", "--quiet"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 4


def test_a_program_is_compiled(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file to a file, a model to a model, which makes the same; rows go by ports."""
    out = tmp_path / "small.program.json"
    assert main(["program", "compile", path, "-o", str(out)]) == 0
    told = capsys.readouterr().out
    assert "regions:" in told
    assert "- meter" not in told  # a clock looks at the one there is
    assert read_program(out).canvas.regions.keys() == PROGRAM.canvas.regions.keys()
    ports = {**PROGRAM.ports, "guess": Out("belief", 3)}
    network = replace(PROGRAM, ports=ports).network()
    save_native(tmp_path / "m", network, initialise(network, seed=1))
    flags = ["-o", str(tmp_path / "s"), "--outputs", "motor", "--json"]
    assert main(["program", "compile", str(tmp_path / "m"), *flags]) == 0
    report = json.loads(capsys.readouterr().out)["reports"][""]
    assert report["after"]["parameters"] < report["before"]["parameters"]
    assert report["notes"][0]["name"] == "guess"
    np.savez(tmp_path / "x.npz", pixels=np.random.default_rng(0).normal(size=(2, 3, 192)))
    made: list[dict[str, Any]] = []
    for model in ("m", "s"):
        target = tmp_path / f"{model}.npz"
        rows = ["--in", str(tmp_path / "x.npz"), "--device", "reference", "--quiet"]
        assert main(["run", str(tmp_path / model), *rows, "-o", str(target)]) == 0
        made.append(dict(np.load(target)))
    assert {name: y.shape for name, y in made[0].items()} == {"motor": (2, 3, 6), "guess": (2, 3, 3)}
    assert made[1].keys() == {"motor"}
    np.testing.assert_array_equal(made[1]["motor"], made[0]["motor"])


@pytest.mark.thorough
def test_constants_are_taken_after_rows_and_exports_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the model, from where they can be read and put back in."""
    regions = {
        "eye": Region(((0, 1), (0, 1)), family="observation"),
        "mind": Region(((0, 1), (1, 3))),
        "store": Region(((1, 2), (0, 2)), carrier="memory", family="memory", slots=3, keep="export"),
    }
    edges = [Edge("eye", "mind"), Edge("mind", "store"), Edge("store", "mind")]
    program = Program(Canvas(1, (2, 3), 4, regions), edges, {"x": In("eye", 3), "y": Out("mind", 2)}, heads=1)
    network = program.network()
    params = initialise(network, seed=1)
    save_native(tmp_path / "m", network, params)
    x = np.random.default_rng(0).normal(size=(1, 5, 3)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    flags = ["program", "compile", str(tmp_path / "m"), "-o", str(tmp_path / "s"), "--overwrite"]
    assert main(flags) == 0
    told = capsys.readouterr().out
    assert "= region store: its keep is 'export', but its content depends on input 'x'" in told
    assert not (tmp_path / "s.exported").exists()
    assert main([*flags, "--rows", str(tmp_path / "x.npz")]) == 0
    told = capsys.readouterr()
    assert "~ region store: it is a constant: its content after 5 rows" in told.out
    assert f"1 regions exported in {tmp_path / 's.exported'}" in told.err
    want = compile_program(program, params, rows=x[0])
    made = read_exported(tmp_path / "s.exported")
    np.testing.assert_array_equal(made["store"], want.exported["store"])
    opened = open_model(tmp_path / "s")
    loaded = load_exported(tmp_path / "s.exported", opened.network, opened.params)
    np.testing.assert_array_equal(loaded["0.0.0.0/regions.store.rows"].values(), want.exported["store"])
    assert main([*flags, "--after", "2"]) == 0
    np.savez(tmp_path / "two.npz", x=x.repeat(2, 0))
    file = tmp_path / "x.program.json"
    save_program(file, want.program)
    capsys.readouterr()
    for arguments, code, message in (
        ([*flags, "--rows", str(tmp_path / "two.npz")], 2, "rows of 2 streams"),
        ([*flags, "--rows", str(tmp_path / "x.npz"), "--after", "2"], 1, "both set"),
        ([*flags, "--after", "0"], 1, "after"),
        (["program", "compile", str(file), "-o", str(tmp_path / "y.json"), "--rows", "x.npz"], 2, "has no weights"),
        (["program", "check", str(file), "--after", "2"], 2, "apply only to program compile"),
    ):
        assert main(arguments) == code
        assert message in capsys.readouterr().err
    assert main(["program", "check", str(file)]) == 0
    assert main(["inspect", str(file)]) == 0
    assert "constant" in capsys.readouterr().out
    assert main(["program", "draw", str(file), "-o", str(tmp_path / "x.svg")]) == 0
    assert main(["program", "diff", str(file), str(file)]) == 0
    assert main(["program", "export", str(file)]) == 0
    assert "lost: region 'store': its constant, whose rows are a parameter" in capsys.readouterr().err


def test_what_is_there_is_replaced_when_asked_for(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, model, exported = tmp_path / "other.program.json", tmp_path / "model", tmp_path / "new.exported"
    network = PROGRAM.network()
    save_native(model, network, initialise(network))
    export, taken = tmp_path / "canvas.json", tmp_path / "taken"
    assert main(["program", "export", path, "-o", str(export)]) == 0
    save_native(taken, network, initialise(network))
    exported.mkdir()
    (exported / "mine").write_text("mine")
    calls = {("compile", path): other, ("compile", str(model)): taken, ("export", path): other}
    calls["import", str(export)] = other
    for (verb, source), target in calls.items():
        other.write_text("mine")
        capsys.readouterr()
        assert main(["program", verb, source, "-o", str(target)]) == 2
        assert f"{target} exists and is not overwritten" in capsys.readouterr().err
        assert other.read_text() == "mine"
        assert main(["program", verb, source, "-o", str(target), "--overwrite"]) == 0
        assert other.read_text() != "mine" or target != other
        if verb != "compile":
            assert main(["program", verb, source, "-o", source, "--overwrite"]) == 1
    assert main(["program", "compile", str(model), "-o", str(tmp_path / "new")]) == 2
    assert f"{exported} exists and is not overwritten" in capsys.readouterr().err
    assert main(["program", "check", path, "--overwrite"]) == 2


def test_what_cannot_be_compiled_is_an_error_and_writes_nothing(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "s.program.json"
    dense = chain([Dense(in_features=2, out_features=1)], (2,))
    save_native(tmp_path / "dense", dense, initialise(dense))
    cut = tmp_path / "cut.program.json"
    cut.write_text(Path(path).read_text()[:200])
    for given, code, message in (
        ([str(cut)], 1, f"{cut}: program: not valid JSON"),
        ([path, "--outputs", "moter"], 1, "did you mean 'motor'?"),
        ([path, "--outputs", ","], 1, "no output is left"),
        ([str(tmp_path / "none.json")], 1, "No such file"),
        ([str(tmp_path / "dense")], 2, "is a program without weights"),
        ([path, "--after", "3"], 2, "has no weights, so that it cannot run rows"),
    ):
        assert main(["program", "compile", *given, "-o", str(out)]) == code
        assert message in capsys.readouterr().err
    assert main(["program", "compile", str(tmp_path / "dense"), "-o", str(tmp_path / "s")]) == 1
    assert "no layer of the network is a program" in capsys.readouterr().err
    assert not out.exists()
    assert not (tmp_path / "s").exists()
    before = Path(path).read_bytes()
    assert main(["program", "compile", path, "-o", path, "--overwrite"]) == 1
    assert "is also the source" in capsys.readouterr().err
    assert Path(path).read_bytes() == before
    assert main(["run", str(cut), "--in", "x.npz"]) == 1
    assert f"error: {cut} is not JSON" in capsys.readouterr().err
    cut.write_text(Path(path).read_text().replace('"region": "eye"', '"region": "eyes"'))
    assert main(["run", str(cut), "--in", "x.npz"]) == 1
    assert f"error: {cut}: " in capsys.readouterr().err
    for verb in ("train", "evolve"):
        assert main([verb, path]) == 1
        assert 'a TOML file names it: [network] with file = "x.program.json"' in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["compile", "a"],
        ["check", "a", "--outputs", "b"],
        ["diff", "a"],
        ["check", "a", "b"],
        ["check", "a", "--heads", "2"],
        ["diff", "a", "b", "-o", "c"],
        ["mend", "a"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["program", *arguments]) == 2
    assert "error: " in capsys.readouterr().err


def test_inspect_of_a_network_tells_its_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = [Dense(in_features=3, out_features=192), Layer(program=PROGRAM), Dense(in_features=6, out_features=192)]
    network = chain([*layers, Layer(program=PROGRAM)], (3,))
    save_native(tmp_path / "m", network, initialise(network))
    assert main(["inspect", str(tmp_path / "m")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    rows = [line.split() for line in lines]
    summary = ["4", "regions,", f"{len(PROGRAM.edges)}", "edges,", "2", "ports"]
    assert [row[:2] + row[4:] for row in rows if row[1:2] == ["program"]] == [
        ["1.0.0.0", "program", *summary],
        ["3.0.0.0", "program", *summary],
    ]
    assert lines.count("program at 1.0.0.0, 3.0.0.0:") == 1
    assert sum(row[:1] == ["act<eye#0"] for row in rows) == 1


def test_inspect_tells_what_a_program_is(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", path]) == 0
    out = capsys.readouterr().out
    for part in (
        "1 frame of 8×8, 64 wide",
        "48 in regions",
        "16.0 KiB",
        "err.prediction > 0.25",
        "act<eye#0",
        "192",
    ):
        assert part in out, (part, out)
    assert main(["inspect", path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["regions"]["belief"]["writers"][0] == "belief<eye#0"
    assert told["edges"]["act<eye#0"]["lag"] == 2
    assert told["ports"]["motor"]["columns"] == [0, 6]
    assert told["states"]["eye.past"] == 4 * 2 * 16 * 64
    assert told["parameters"] > 4 * 64 * 64
    assert told["latency"] == {"motor": 1}
    assert told["problems"] == []
    assert main(["program", "check", str(Path(path).parent)]) == 1
    assert "`volumetric inspect` lists the programs" in capsys.readouterr().err
    cut = Path(path).read_text().replace("> 0.25", ">")
    Path(path).write_text(cut)
    assert main(["program", "check", path]) == 1
    assert "belief: a region: clock: expected a number, at character 17" in capsys.readouterr().err
    assert main(["inspect", "none.program.json"]) == 1
    assert "No such file" in capsys.readouterr().err
