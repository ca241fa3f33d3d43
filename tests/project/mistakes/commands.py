"""Mistakes on the command line: files, settings and words."""

from __future__ import annotations

from tests.project.mistakes.mistake import on_command_line

MISTAKES = (
    on_command_line("no file", "train", "train | needs the TOML file | volumetric train FILE.toml"),
    on_command_line("file that is not there", "train trian.toml", "trian.toml | No such file | 'train.toml'"),
    on_command_line("folder in place of a file", "train folder", "folder | Is a directory | TOML file"),
    on_command_line("arrays in place of a file", "train xy.npz", 'xy.npz | it is not text | npz = "xy.npz"'),
    on_command_line("table in place of a file", "train points.csv", 'points.csv | not valid TOML | csv = "points.csv"'),
    on_command_line("Python in place of a file", "train my_losses.py", "my_losses.py | not valid TOML | key = value"),
    on_command_line(
        "evolution's file for training", "train evolve.toml", "'population' | unknown key | volumetric evolve"
    ),
    on_command_line("training's file for evolution", "evolve train.toml", "'network' | unknown key | volumetric train"),
    on_command_line("epochs as a flag", "train train.toml --epochs 5", "--epochs | unknown flag | --set train.epochs="),
    on_command_line("rate as a flag", "train train.toml --lr 0.1", "--lr | unknown flag | train.optimiser="),
    on_command_line(
        "section left out of --set", "train train.toml --set epochs=5", "'epochs' | unknown key | train.epochs"
    ),
    on_command_line(
        "--set without a value",
        "train train.toml --set train.epochs",
        "--set | must be KEY=VALUE | --set train.epochs=5",
    ),
    on_command_line(
        "--set with a space", "train train.toml --set train.epochs = 5", "train | '= 5' | --set train.epochs=5"
    ),
    on_command_line(
        "--set of a misspelled key", "train train.toml --set train.epoch=5", "[train] | 'epoch' | 'epochs'"
    ),
    on_command_line("flag misspelled", "train train.toml --devise cpu", "--devise | unknown flag | --device"),
    on_command_line("device of CUDA", "train train.toml --device cuda:0", "--device | 'cuda:0' | gpu:0"),
    on_command_line("device misspelled", "train train.toml --device gpuu", "--device | 'gpuu' | 'gpu'"),
    on_command_line("type of nobody", "train train.toml --dtype fp17", "--dtype | 'fp17' | float16"),
    on_command_line("output flag of others", "train train.toml -o out", "-o | unknown flag | --out DIRECTORY"),
    on_command_line("broken TOML", "train broken.toml", "broken.toml | line 2 | write = once"),
    on_command_line("resume of nothing", "train train.toml --resume 5", "train | '5' | --resume takes no value"),
    on_command_line("verb misspelled", "trian train.toml", "'trian' | unknown command | train"),
    on_command_line("verb of others: fit", "fit train.toml", "'fit' | unknown command | volumetric train"),
    on_command_line("verb of others: predict", "predict model", "'predict' | unknown command | volumetric generate"),
    on_command_line("verb of others: eval", "eval model", "'eval' | unknown command | volumetric perplexity"),
    on_command_line(
        "verb of others: quantize", "quantize model q4_0", "'quantize' | unknown command | volumetric convert"
    ),
    on_command_line("verb of others: pull", "pull llama3", "'pull' | unknown command | volumetric inspect"),
    on_command_line("verb of others: list", "list", "'list' | unknown command | hf cache ls"),
    on_command_line("export to a file of others", "export model model.onnx", "export | --web | volumetric convert"),
    on_command_line("verb of others: install", "install volumetric", "'install' | unknown command | pip install"),
    on_command_line("verb of others: init", "init", "'init' | unknown command | volumetric new"),
    on_command_line("help as a flag of one letter", "--hlep", "'--hlep' | unknown flag | --help"),
    on_command_line(
        "model as a flag of a verb that is not there",
        "--model letters",
        "'--model' | unknown flag | a command comes first",
    ),
)
