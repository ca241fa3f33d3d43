"""The comparison with peers on a GPU runs small without them, and those that are installed compute the same."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.peers.comparison import Comparison, compare, table
from benchmarks.peers.encoder_comparison import measure_encoder
from benchmarks.peers.llama_comparison import write_models
from benchmarks.peers.llama_server import LlamaLibrary, LlamaServer, random_prompts, rate_of_slots
from benchmarks.peers.random_encoder import MINILM
from benchmarks.peers.transformer_training import SUCCESSORS, chained_tokens, measure_transformer
from benchmarks.random_model import VOCABULARY, printable, random_text_model, with_bits
from benchmarks.synthetic_tokenizer import END, byte_ids, synthetic_tokenizer
from tests.bench.test_training_suite import ROW
from tests.devices import device
from volumetric.base.errors import DeviceError, SpecError
from volumetric.loaders import open_model
from volumetric.loaders.gguf_export import save_gguf

SMALL = {**MINILM, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"vocab_size": 300}
LLAMA = ["gpu_peers", "llama", "--device", "reference", "--models", "tiny.int4:g32", "--clients", "2"]
LLAMA += ["--prompt", "8", "--tokens", "2", "--rounds", "1"]


def rates(*values: float):
    """Return what measures these rates, one after the other."""
    left = iter(values)
    return lambda: next(left)


def test_the_faster_form_of_a_peer_counts_and_the_first_round_does_not() -> None:
    row = compare("a", "tok/s", rates(1, 200, 300), {"x": rates(9, 100, 100), "y": rates(9, 100, 200)}, 2)
    assert (row.ours, row.peer) == ([200, 300], {"x": [100, 100], "y": [100, 200]})
    assert row.best == "y"
    assert row.ratio == 1.75  # of 2.0 and 1.5
    assert row.cells() == ["a", "tok/s", "250 (200–300)", "150 (100–200) y", "1.75"]
    alone = Comparison(what="b", unit="texts/s", ours=[1.5])
    assert (alone.ratio, alone.cells()[2:]) == (None, ["1.5 (1.5–1.5)", "-", "-"])
    lines = table([row, alone], "peer").splitlines()
    assert lines[0] == "|  | unit | volumetric | peer | ratio |"
    assert lines[3] == "| b | texts/s | 1.5 (1.5–1.5) | - | - |"


def test_the_synthetic_tokenizer_encodes_any_text_and_survives_a_file(tmp_path) -> None:
    model = random_text_model("tiny", "int4:g32", vocabulary=VOCABULARY)
    model = printable(with_bits(replace(model, tokenizer=synthetic_tokenizer(VOCABULARY))))
    save_gguf(tmp_path / "tiny.gguf", model)
    opened = open_model(tmp_path / "tiny.gguf")
    text = "Hello, world: größer 𝔸\n\x00!"
    for tokenizer in (model.tokenizer, opened.tokenizer):
        assert tokenizer is not None
        assert tokenizer.vocab_size == VOCABULARY
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert len(ids) < len(text.encode())
        assert tokenizer.token(VOCABULARY - 1) == END
        assert {i for i in range(VOCABULARY) if not (tokenizer.token(i) or "é").isascii()} == {*byte_ids(VOCABULARY)}
    assert opened.generation.eos_ids == (VOCABULARY - 1,)
    stored = {key: store.scheme for key, store in model.params.items()}
    assert {key: store.scheme for key, store in opened.params.items()} == stored
    assert {"int4:g32", "float32"} <= {str(scheme) for scheme in stored.values()}
    assert all(np.isfinite(store.values()).all() for store in opened.params.values())
    heads = [store.values() for store in opened.params.values() if store.shape[0] == VOCABULARY]
    assert len(heads) == 2
    assert all(not head[byte_ids(VOCABULARY)].any() for head in heads)
    assert all(head[: byte_ids(VOCABULARY).start].any(1).all() for head in heads)


def test_llama_runs_without_a_peer_and_keeps_its_files(tmp_path, capsys) -> None:
    words = [*LLAMA, "--directory", str(tmp_path), "--json", str(tmp_path / "rows.json")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    for what in ("tiny.int4-g32 prompt 8", "tiny.int4-g32 decode × 1", "tiny.int4-g32 decode × 2"):
        assert f"| {what} | tok/s |" in shown
    written = (tmp_path / "tiny.int4-g32.gguf").stat().st_mtime_ns
    assert [len(row["ours"]) for row in json.loads((tmp_path / "rows.json").read_text())["rows"]] == [1, 1, 1]
    write_models(tmp_path, ["tiny.int4:g32"])
    assert (tmp_path / "tiny.int4-g32.gguf").stat().st_mtime_ns == written


def test_a_server_without_a_gpu_is_refused(tmp_path) -> None:
    server = tmp_path / "llama-server"
    with pytest.raises(DeviceError, match="cannot start"):
        LlamaServer(server, tmp_path / "a.gguf", slots=1, context=64)
    server.write_text("#!/bin/sh\necho 'Available devices:'\necho '  (none)'\n")
    server.chmod(0o755)
    with pytest.raises(DeviceError, match=r"sees no GPU and says: \(none\)"):
        LlamaServer(server, tmp_path / "a.gguf", slots=1, context=64)
    server.write_text("#!/bin/sh\necho 'cannot load a.gguf' >&2\nexit 1\n")
    with pytest.raises(DeviceError, match=r"did not start: cannot load a\.gguf"):
        LlamaServer(server, tmp_path / "a.gguf", slots=1, context=64, gpu_layers=0)
    with pytest.raises(DeviceError, match=r"llama\.cpp: RuntimeError: .* has no libllama\.so"):
        LlamaLibrary(server, tmp_path / "a.gguf", slots=1, context=64)


def test_slots_add_up_and_prompts_have_no_special_tokens() -> None:
    assert rate_of_slots([{"predicted_per_second": 40.0}, {"predicted_per_second": 2.5}]) == 42.5
    prompts = random_prompts(VOCABULARY, 3, 500)
    assert [len(prompt) for prompt in prompts] == [500, 500, 500]
    assert max(map(max, prompts)) < VOCABULARY - 1
    assert prompts == random_prompts(VOCABULARY, 3, 500)
    assert prompts[0] != prompts[1]


def encoders(python: Path | None, config=SMALL):
    """Measure small encoders on the reference device."""
    return measure_encoder(
        device("reference"), python, batches=[1, 3], lengths=[5], rounds=1, provider="CPUExecutionProvider",
        config=config, tokens=8,
    )  # fmt: skip


def test_an_encoder_runs_without_a_peer() -> None:
    rows = list(encoders(None))
    assert [row.what for row in rows] == [
        f"{dtype} weights, {texts} texts of 5" for dtype in ("float32", "float16") for texts in (1, 3)
    ]
    assert all(row.peer == {} and len(row.ours) == 1 for row in rows)


@pytest.mark.thorough
def test_onnx_runtime_computes_the_same_encoder() -> None:
    """`measure_encoder` raises unless it does."""
    pytest.importorskip("onnxruntime")
    single, batch, *_ = encoders(Path(sys.executable))
    assert set(single.peer) == {"float32", "float16", "as exported"}
    assert set(batch.peer) == {"float32", "float16"}
    assert all(rate > 0 for rates in single.peer.values() for rate in rates)


@pytest.mark.thorough
def test_another_encoder_is_noticed(monkeypatch) -> None:
    pytest.importorskip("onnxruntime")
    from benchmarks.peers import encoder_comparison as module

    weights = module.named_weights
    monkeypatch.setattr(module, "named_weights", lambda model: {k: 1.5 * v for k, v in weights(model).items()})
    with pytest.raises(DeviceError, match="float32 differs from ours"):
        list(encoders(Path(sys.executable)))


def test_decoders_run_without_a_peer(capsys) -> None:
    words = ["gpu_peers", "torch", "--device", "reference", "--prompt", "8", "--tokens", "2", "--rounds", "1"]
    assert main([*words, "--models", "tiny", "--clients", "1,2"]) == 0
    assert "| tiny float16 decode × 2 | tok/s |" in capsys.readouterr().out
    assert main([*words, "--models", "none"]) == 1
    assert "there is no shape 'none'\nhint: known: tiny" in capsys.readouterr().err


def test_a_transformer_is_trained_on_tokens_that_can_be_learned() -> None:
    ids = chained_tokens(50, 40, 100)
    follow = [set(ids[:, 1:][ids[:, :-1] == token].tolist()) for token in range(50)]
    assert max(map(len, follow)) == SUCCESSORS
    (row,) = measure_transformer("tiny", device("reference"), None, updates=2, rounds=1, sequences=2, length=8)
    assert row.what == "train tiny (0.1 M), 2 × 8 tokens, float32"
    with pytest.raises(SpecError, match="no shape 'none'"):
        list(measure_transformer("none", device("reference"), None, updates=1, rounds=1))


@pytest.mark.thorough
@pytest.mark.parametrize("part", ["torch", "training"])
def test_pytorch_that_does_not_run_is_named(part: str, tmp_path, capsys) -> None:
    """An interpreter that is not there, and one without the package: `-S` leaves installed packages out."""
    words = ["gpu_peers", part, "--device", "reference", "--models", "tiny", "--rounds", "1", "--peer-python"]
    assert main([*words, "/no/such/python"]) == 1
    assert "cannot start /no/such/python" in capsys.readouterr().err
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    assert main([*words, str(bare)]) == 1
    assert "PyTorch: RuntimeError: torch is not installed\nhint: pip install torch" in capsys.readouterr().err


def test_training_is_compared_with_graphs_where_there_are_some() -> None:
    assert ROW.recorded_ratio is None
    row = replace(ROW, recorded=0.5)
    assert row.values()["recorded_ratio"] == 0.25


@pytest.mark.parametrize(
    "flag", ["--clients=x", "--clients=0", "--rounds=0", "--tokens=-1", "--prompt=0", "--batches=1,,1.5"]
)
def test_numbers_below_one_are_refused(flag, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["gpu_peers", "torch", flag])
    assert "must be a whole number of 1 or more" in capsys.readouterr().err
