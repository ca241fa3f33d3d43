"""`inspect` and `devices`."""

from __future__ import annotations

import json
import sys

from tests.cli.rows import NETWORK, PARAMS
from tests.cli.test_verbs import LLAMA
from volumetric.analysis.standardise import Standardisation
from volumetric.builders import chain
from volumetric.layers import RNN, Dense, Embedding, Parallel, Sequential
from volumetric.loaders import save_native
from volumetric.loaders.native_checkpoint import NativeFacts
from volumetric.network import initialise


def test_inspect_opens_no_device(run, monkeypatch):
    monkeypatch.setattr("volumetric.devices.named_devices.open_device", None)
    code, out, err = run("inspect", str(LLAMA), "--tensors")
    assert (code, err) == (0, "")
    for fact in ("llama", "106,816", "417.2 KiB", "32.0", "multi_head_attention", "1…2.0.0.1", "1.0.0.1/q.weight"):
        assert fact in out


def test_inspect_json_has_layers_and_tensors(run, letters):
    told = json.loads(run("inspect", letters, "--json")[1])
    assert (told["parameters"], told["vocabulary"], told["tokenizer"], told["chat_template"]) == (81, 9, True, True)
    assert told["generation"]["eos_ids"] == [8]
    assert [layer["kind"] for layer in told["layers"]] == ["embedding"]
    assert told["tensors"] == [{"name": "0.0.0.0/weight", "shape": [9, 9], "dtype": "float32", "bytes": 324}]


def test_inspect_shows_branches_and_shapes_of_any_format(run, tmp_path):
    inside = Sequential(layers=(Dense(in_features=4, out_features=3), Dense(in_features=3, out_features=2)))
    network = chain([Parallel(branches=(inside, Dense(in_features=4, out_features=5)))], (4,))
    (tmp_path / "net.json").write_text(network.to_json())
    code, out, err = run("inspect", str(tmp_path / "net.json"))
    assert code == 0
    assert "has no weights" in err
    lines = [line.split() for line in out.splitlines()]
    assert ["0.0.0.0", "parallel", "T×7"] in lines
    assert ["0.0.0.0/0/1", "dense", "T×2", "8", "weight", "2×3", "bias", "2"] in lines
    told = json.loads(run("inspect", str(tmp_path / "net.json"), "--json")[1])
    assert told["layers"][0]["children"][0]["children"][1]["at"] == "0.0.0.0/0/1"
    assert told["layers"][0]["parameters"] == told["parameters"] == 15 + 8 + 25


def test_inspect_says_what_grows_on_gpus(run, tmp_path):
    layers = [Dense(in_features=256, out_features=4), Dense(in_features=4, out_features=2)]
    (tmp_path / "net.json").write_text(chain(layers, (256,)).to_json())
    for dtype, told in (("tq1_0", {"tq1_0": "2.06 bits a weight"}), ("q4_k", None)):
        facts = json.loads(run("inspect", str(tmp_path / "net.json"), "--dtype", dtype, "--json")[1])
        assert facts["dtypes"][dtype] == 1024
        assert facts.get("repacked_on_gpus") == told


def test_inspect_shows_the_numeric_types_after_conversion(run):
    _, out, _ = run("inspect", str(LLAMA), "--dtype", "int4:g32")
    assert "int4:g32" in out
    assert "bits_per_weight: 5." in out


def test_inspect_says_what_a_genome_is(run, tmp_path):
    (tmp_path / "champion.json").write_text('{"format": "volumetric.genome", "version": 1}')
    code, out, err = run("inspect", str(tmp_path / "champion.json"))
    assert (code, out) == (1, "")
    assert "is a genome of evolve, not a network" in err
    assert "`champion`" in err


def test_devices_lists_and_explains(run):
    code, out, _ = run("devices")
    assert code == 0
    assert "reference" in out
    assert "auto is " in out
    told = json.loads(run("devices", "--json")[1])
    assert told["auto"] in {device["name"] for device in told["devices"]}
    assert told["reason"]


def test_devices_opens_gpus_for_what_drivers_do_not_state(run):
    described = json.loads(run("devices", "--json")[1])
    gpus = [info for info in described["devices"] if info["kind"] == "gpu"]
    assert gpus
    for info in gpus:
        assert info["details"]["loop_rounds"] == "no end found" or info["details"]["loop_rounds"] > 0


def test_devices_says_why_there_is_no_gpu(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "wgpu", None)
    code, out, _ = run("devices")
    assert code == 0
    told = out.splitlines()[-1]
    assert told.startswith("auto is cpu: wgpu cannot be loaded: import of wgpu halted")
    assert "pip install" in told
    assert "Vulkan" not in told
    assert "--device cpu" in told


def test_inspect_shows_what_a_network_of_numbers_has(run, letters, tmp_path):
    facts = NativeFacts(inputs=Standardisation(mean=(0.0,) * 3, deviation=(1.0,) * 3), classes=("no", "yes"))
    save_native(tmp_path / "classes", NETWORK, PARAMS, facts=facts)
    shown = json.loads(run("inspect", str(tmp_path / "classes"), "--json")[1])
    assert (shown["reads"], shown["makes"], shown["standardised"], shown["classes"]) == (
        "[T, 3]",
        "[T, 2]",
        True,
        ["no", "yes"],
    )
    of_texts = {"architecture", "context", "vocabulary", "tokenizer", "chat_template", "generation"}
    assert not of_texts & shown.keys()
    save_native(tmp_path / "plain", NETWORK, PARAMS)
    assert "classes:" not in run("inspect", str(tmp_path / "plain"))[1]
    assert "no, yes" in run("inspect", str(tmp_path / "classes"))[1]
    assert of_texts - {"architecture"} <= json.loads(run("inspect", letters, "--json")[1]).keys()
    votes = chain([Embedding(num_embeddings=4, embedding_dim=3), RNN(input_size=3, hidden_size=2)], (), "int32")
    save_native(tmp_path / "votes", votes, initialise(votes), facts=NativeFacts(classes=("minus", "plus")))
    of_ids = json.loads(run("inspect", str(tmp_path / "votes"), "--json")[1])
    assert (of_ids["reads"], of_ids["makes"], of_ids["classes"]) == ("ids 0…3 [T]", "[T, 2]", ["minus", "plus"])
    assert not of_texts & of_ids.keys()
