"""The verb convert where types are chosen matrix by matrix."""

from __future__ import annotations

import json


def test_types_by_budget_and_by_name(run, letters, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abcdefghijklmnopqrstuvwxyz" * 20)
    code, out, err = run("convert", letters, str(tmp_path / "mixed"), "--bits", "9.5", "--calibrate", str(text))
    assert code == 0, err
    assert "damage, nats" in out
    assert "as it was" in out
    told = json.loads(run("inspect", str(tmp_path / "mixed"), "--json")[1])
    assert told["bits_per_weight"] <= 9.5
    assert any("damage" in tensor for tensor in told["tensors"])
    assert "damage, nats" in run("inspect", str(tmp_path / "mixed"), "--tensors")[1]
    for wrong in (["--bits", "6"], ["--bits", "6", "--dtype", "int4"], ["--bits", "0"], ["--tensor-type", "int4"]):
        assert run("convert", letters, str(tmp_path / "none"), *wrong)[0] == 2
    assert run("convert", letters, str(tmp_path / "some"), "--tensor-type", "*/weight=int8")[0] == 0
    assert "int8:g32" in run("inspect", str(tmp_path / "some"), "--tensors")[1]
    assert not (tmp_path / "none").exists()
