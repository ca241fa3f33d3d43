"""Encoder families: tiny models give what transformers computes, with every head, on every device."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import device
from volumetric.base._typing import F32Array
from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.loaders import LoadedModel, open_model
from volumetric.loaders.convert_model import save_model
from volumetric.loaders.encoder_layers import TOKEN_TYPES
from volumetric.loaders.safetensors import SafetensorsFile
from volumetric.loaders.safetensors_write import array_out, write_safetensors
from volumetric.network import INPUT
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower

TINY = Path(__file__).parents[1] / "fixtures" / "hf_encoders"
CASES = sorted(path.parent.name for path in TINY.glob("*/expected.json") if path.parent.name != "bert")
ON_GPU = ("bert_judge", "modernbert_masked")
"""Token types and a pooled head; windows, two rotary bases and gated blocks."""


def outputs(model: LoadedModel, name: str, ids: list[int], types: list[int] | None) -> F32Array:
    """What a device computes: a row for each token, or one for the text where a head judges it."""
    given = {INPUT: np.array(ids, np.int32)} | ({TOKEN_TYPES: np.array(types, np.int32)} if types else {})
    run = device(name).compile(lower(model.network), model.params, RunOptions(context=40))
    y = run.forward(run.new_state(), given, last_only=False)
    run.close()
    if model.head is None:
        return y
    pooled = y[:1] if model.head.pooling == "cls" else y.mean(0, keepdims=True)
    head = device(name).compile(lower(model.head.network), model.head.params)
    return head.forward(head.new_state(), pooled)[0]


def expected(case: str) -> dict[str, Any]:
    return json.loads((TINY / case / "expected.json").read_text())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("case", "where"),
    [(case, where) for case in CASES for where in ("reference", "cpu")] + [(case, "gpu") for case in ON_GPU],
)
def test_families_give_the_outputs_of_transformers(case: str, where: str) -> None:
    record, model = expected(case), open_model(TINY / case)
    for ids, types, wanted in zip(
        record["input_ids"], record["token_types"] or [None] * 3, record["outputs"], strict=True
    ):
        reference = np.array(wanted)
        error = np.abs(outputs(model, where, ids, types) - reference).max() / np.abs(reference).max()
        assert error < 1e-5, f"{len(ids)} tokens: {error}"


@pytest.mark.parametrize("where", ["reference", "cpu"])
def test_bert_without_a_head_gives_hidden_states(where: str) -> None:
    record, model = expected("bert"), open_model(TINY / "bert")
    for row, (ids, mask) in enumerate(zip(record["input_ids"], record["attention_mask"], strict=True)):
        kept = ids[: sum(mask)]
        y = outputs(model, where, kept, None)
        assert np.abs(y[0] - record["first_token"][row]).max() < 2e-5
        assert np.abs(y[-1] - record["last_kept"][row]).max() < 2e-5


def test_positions_of_roberta_end_before_the_table_does() -> None:
    model = open_model(TINY / "roberta_masked")
    assert model.context_length == 40 - 2


@pytest.mark.parametrize("case", ["bert_judge", "modernbert_judge", "roberta_masked", "xlm_roberta_pairs"])
def test_written_encoders_are_the_same(case: str, tmp_path: Path) -> None:
    model = open_model(TINY / case)
    save_model(tmp_path / case, model, "hf")
    before, after = (SafetensorsFile(home / case / "model.safetensors") for home in (TINY, tmp_path))
    assert before.entries.keys() == after.entries.keys()
    for name in before.entries:
        assert np.array_equal(before.packed(name).payload, after.packed(name).payload), name
    assert open_model(tmp_path / case).classes == model.classes
    if model.head is not None:
        with pytest.raises(UnsupportedError, match="text classification head"):
            save_model(tmp_path / "one.json", model, "loom")


@pytest.mark.thorough
@pytest.mark.parametrize("case", [case for case in CASES if "judge" in case or "masked" in case or "pairs" in case])
def test_native_checkpoints_keep_heads(case: str, tmp_path: Path) -> None:
    model = open_model(TINY / case)
    save_model(tmp_path / "native", model, "native")
    again = open_model(tmp_path / "native")
    assert (again.classes, again.hidden, again.sentences) == (model.classes, model.hidden, model.sentences)
    ids = expected(case)["input_ids"][0]
    np.testing.assert_array_equal(outputs(again, "reference", ids, None), outputs(model, "reference", ids, None))
    small = open_model(tmp_path / "native", dtype="int8")
    assert "int8:g32" in map(str, small.params.schemes())
    if model.head is not None and again.head is not None:
        assert again.head.network == model.head.network
        assert again.head.pooling == model.head.pooling
        for part in ("head.json", "head.safetensors"):
            (tmp_path / "native" / part).rename(tmp_path / part)
            with pytest.raises(CheckpointError, match=part):
                open_model(tmp_path / "native")
            (tmp_path / part).rename(tmp_path / "native" / part)
        files = {path.name: path.read_bytes() for path in (tmp_path / "native").iterdir()}
        save_model(tmp_path / "native", again, "native")
        assert {path.name: path.read_bytes() for path in (tmp_path / "native").iterdir()} == files


def rewritten(case: str, home: Path, rename: Any, **config: Any) -> Path:
    """Copy of a fixture with other tensor names, None for none, and other values in its configuration."""
    target = home / case
    shutil.copytree(TINY / case, target)
    file = SafetensorsFile(TINY / case / "model.safetensors")
    names = {name: rename(name) for name in file.entries}
    tensors = {
        new: array_out(file.packed(old).codes().reshape(file.entries[old].shape)) for old, new in names.items() if new
    }
    write_safetensors(target / "model.safetensors", tensors, {"format": "pt"})
    path = target / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return target


def test_names_of_tensorflow_and_no_prefix_are_understood(tmp_path: Path) -> None:
    def rename(name: str) -> str | None:
        if name.startswith("cls."):
            return None
        name = name.removeprefix("bert.")
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    plain = open_model(rewritten("bert_masked", tmp_path, rename))
    assert plain.hidden is None  # the checkpoint was saved without its head
    y = outputs(plain, "reference", [3, 17, 2], None)
    whole = open_model(TINY / "bert_masked")
    assert whole.hidden is not None
    assert y.shape == (3, 32)
    assert outputs(whole, "reference", [3, 17, 2], None).shape == (3, 96)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    gone = "bert.encoder.layer.1.output.dense.bias"
    with pytest.raises(CheckpointError, match=gone):
        open_model(rewritten("bert_judge", tmp_path, lambda name: None if name == gone else name))


@pytest.mark.parametrize(
    ("case", "config"),
    [
        ("bert_masked", {"position_embedding_type": "relative_key"}),
        ("bert_masked", {"is_decoder": True}),
        ("nomic_bert", {"rotary_emb_interleaved": True}),
        ("modernbert_judge", {"classifier_pooling": "max"}),
        ("modernbert_judge", {"layer_types": ["other_attention"] * 4}),
    ],
)
def test_variants_that_are_not_built_are_refused_by_name(case: str, config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=next(iter(config))):
        open_model(rewritten(case, tmp_path, lambda name: name, **config))


def test_nomic_s_own_spelling_is_read(tmp_path: Path) -> None:
    own = {"n_embd": 32, "n_head": 2, "n_inner": 48, "n_layer": 2, "n_positions": 40, "layer_norm_epsilon": 1e-12}
    none = dict.fromkeys(("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers"))
    more = {"rotary_emb_base": 1000, "rope_parameters": None, "activation_function": "swiglu", "prenorm": False}
    path = rewritten("nomic_bert", tmp_path, lambda name: name, **none, **own, **more)
    record = expected("nomic_bert")
    y = outputs(open_model(path), "reference", record["input_ids"][0], record["token_types"][0])
    assert np.abs(y - record["outputs"][0]).max() < 1e-5
