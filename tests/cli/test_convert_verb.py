"""The verb `convert`: what it says of types that were not taken, and of what llama.cpp would compute otherwise."""

from __future__ import annotations

from pathlib import Path

from volumetric.loaders import open_model

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"


def test_types_that_rows_do_not_fill_are_told(run, tmp_path):
    code, out, _ = run("convert", str(TINY / "llama"), str(tmp_path / "m.gguf"), "--dtype", "q4_k")
    assert code == 0
    assert "m.gguf: llama as q4_k, " in out
    assert "% of the weights are q5_0: rows of 64 do not fill its blocks of 256" in out
    assert "% of the weights are q5_0: rows of 160 do not fill its blocks" in out
    _, out, _ = run("convert", str(TINY / "llama"), str(tmp_path / "b.gguf"), "--dtype", "bf16")
    assert out == f"{tmp_path / 'b.gguf'}: llama as bfloat16, {out.rpartition(', ')[2]}"


def test_a_window_is_named_and_the_way_out_works(run, tmp_path):
    given, target = str(TINY / "mistral"), str(tmp_path / "m.gguf")
    code, _, err = run("convert", given, target)
    assert code == 1
    assert "a window of 16 tokens" in err
    assert "--context 16 writes a file" in err
    code, _, _ = run("convert", given, target, "--context", "16")
    assert code == 0
    assert open_model(target).context_length == 16
    assert run("convert", given, target, "--context", "0")[0] == 2


def test_differences_are_allowed_by_name(run, tmp_path):
    given, target = str(TINY / "llama4"), str(tmp_path / "m.gguf")
    code, _, err = run("convert", given, target)
    assert (code, "--allow-differences" in err) == (1, False)  # that file cannot say what the model is
    code, _, err = run("convert", str(TINY / "llama"), target, "--allow-differences")
    assert code == 0
