"""What llama.cpp asks of GGUF files, by its sources: a head, families, and what it would compute otherwise."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loaders.test_convert import assert_same
from tests.loaders.test_gguf_encoders import TINY as ENCODERS
from tests.loaders.test_gguf_encoders import hidden_states
from tests.loaders.tiny import TINY, copy, expected, logits, rewrite
from volumetric.base.errors import UnsupportedError
from volumetric.dtypes import decode
from volumetric.graph.numeric.rope import Rope, inverse_frequencies
from volumetric.layers import MultiHeadAttention
from volumetric.loaders import LoadedModel, archs, open_model
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_rope import _llama3, rope_factors
from volumetric.loaders.hf_config import Config

WHOLE = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
RAMP = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}


def tied(family: str, home: Path, **config: Any) -> Path:
    """A fixture without the head that it has."""
    directory = copy(family, home, tie_word_embeddings=True, **config)
    rewrite(directory, lambda tensors: tensors.pop("lm_head.weight", None))
    return directory


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["olmo2", "olmo3", "qwen2_moe", "gpt_oss", "stablelm", "gpt_neox"])
def test_a_shared_head_is_written_where_llama_cpp_wants_one(family: str, tmp_path: Path) -> None:
    directory = copy(family, tmp_path, tie_word_embeddings=True)
    rewrite(directory, lambda tensors: [tensors.pop(name, None) for name in ("lm_head.weight", "embed_out.weight")])
    convert_model(directory, tmp_path / "m.gguf", dtype="float16")
    file = GGUFFile(tmp_path / "m.gguf")
    head, embedding = file.packed("output.weight"), file.packed("token_embd.weight")
    assert file.entries["output.weight"].type == "F16"
    np.testing.assert_array_equal(head.payload, embedding.payload)
    ids = expected(family)["input_ids"]
    given = logits(open_model(directory, dtype="float16"), ids)
    np.testing.assert_allclose(logits(open_model(tmp_path / "m.gguf"), ids), given, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen3", "granite", "phi3"])
def test_a_shared_head_is_left_out_elsewhere(family: str, tmp_path: Path) -> None:
    convert_model(tied(family, tmp_path), tmp_path / "m.gguf")
    assert "output.weight" not in GGUFFile(tmp_path / "m.gguf").entries


SPELLINGS = {"nomic-bert": "nomic-bert", "nomic_bert": "nomic-bert", "gemma3_text": "gemma3", "gemma3": "gemma3"}


def test_families_are_spelled_with_hyphens_and_underscores(tmp_path: Path) -> None:
    forms = {name: archs.gguf_family_of(Config({"model_type": name}, name)).architecture for name in SPELLINGS}
    assert forms == SPELLINGS
    source = tmp_path / "xlm"
    directory = copy_encoder(
        "roberta_masked", source, model_type="xlm-roberta", architectures=["XLMRobertaForMaskedLM"]
    )
    convert_model(directory, tmp_path / "m.gguf")
    assert GGUFFile(tmp_path / "m.gguf").metadata["general.architecture"] == "bert"
    ids = np.array([3, 17, 40, 5, 21, 9], np.int32)
    np.testing.assert_array_equal(hidden_states(tmp_path / "m.gguf", ids), hidden_states(directory, ids))


def copy_encoder(name: str, home: Path, **config: Any) -> Path:
    """A copy of an encoder's fixture with other values in its configuration."""
    shutil.copytree(ENCODERS / name, home)
    values = json.loads((home / "config.json").read_text())
    (home / "config.json").write_text(json.dumps(values | config))
    return home


@pytest.mark.parametrize(
    ("family", "config", "message"),
    [
        (
            "phi3",
            {"sliding_window": 16},
            "ignores windows of 'phi3', but the model has one of 16 .*--context 16",
        ),
        ("gpt_oss", {"rope_parameters": RAMP}, r"rounds the ends of yarn's ramp .* \(truncate: false\)"),
    ],
)
def test_what_llama_cpp_computes_otherwise_is_refused(
    family: str, config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    directory = copy(family, tmp_path, **config)
    with pytest.raises(UnsupportedError, match=message) as caught:
        convert_model(directory, tmp_path / "m.gguf")
    assert "--allow-differences" in (caught.value.hint or "")
    assert not (tmp_path / "m.gguf").exists()
    convert_model(directory, tmp_path / "m.gguf", allow_differences=True)
    assert_same(open_model(tmp_path / "m.gguf"), open_model(directory))


@pytest.mark.parametrize(("family", "window"), [("mistral", 16), ("phi3", 16), ("starcoder2", 16), ("mixtral", 16)])
def test_a_window_as_long_as_the_context_is_left_out(family: str, window: int, tmp_path: Path) -> None:
    directory = copy(family, tmp_path, sliding_window=window)
    convert_model(directory, tmp_path / "m.gguf", context=window)
    file, ids = GGUFFile(tmp_path / "m.gguf"), expected(family)["input_ids"][:window]
    architecture = file.metadata["general.architecture"]
    assert file.metadata[f"{architecture}.context_length"] == window
    found, given = open_model(tmp_path / "m.gguf"), open_model(directory)
    assert found.context_length == window
    np.testing.assert_allclose(logits(found, ids), logits(given, ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("context", "form", "message"),
    [
        (257, "gguf", "sequences of 1 to 256 tokens"),
        (0, "gguf", "got context 0"),
        (8, "hf", "does not store a context separately"),
    ],
)
def test_contexts_that_cannot_be(context: int, form: Any, message: str, tmp_path: Path) -> None:
    target = tmp_path / ("m.gguf" if form == "gguf" else "m")
    with pytest.raises(UnsupportedError, match=message):
        convert_model(TINY / "llama", target, format=form, context=context)


def rope_of(model: LoadedModel) -> Any:
    return next(spec.rope for spec in model.network.layers.values() if isinstance(spec, MultiHeadAttention))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "constants",
    [
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0},
        {"factor": 4.0, "low_freq_factor": 0.5, "high_freq_factor": 8.0},
        {"factor": 2.0, "low_freq_factor": 2.0, "high_freq_factor": 2.0},
    ],
)
def test_other_constants_of_llama3_are_factors(constants: dict[str, float], tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "original_max_position_embeddings": 64, **constants}
    directory = copy("llama", tmp_path, rope_parameters=rope, rope_scaling=None)
    convert_model(directory, tmp_path / "m.gguf")
    given, found = open_model(directory), open_model(tmp_path / "m.gguf")
    plain = 1e4 ** (-np.arange(0, rope_of(given).dim, 2) / rope_of(given).dim)
    wanted = plain / inverse_frequencies(rope_of(given))
    stored = decode(GGUFFile(tmp_path / "m.gguf").packed("rope_freqs.weight"))
    np.testing.assert_allclose(stored, wanted, rtol=1e-6)
    for context in (16, 2**20):  # whatever is chosen by the context of a run
        turned = inverse_frequencies(rope_of(found).for_context(context))
        np.testing.assert_allclose(turned, inverse_frequencies(rope_of(given)), rtol=1e-6)
    convert_model(tmp_path / "m.gguf", tmp_path / "again.gguf")
    again = decode(GGUFFile(tmp_path / "again.gguf").packed("rope_freqs.weight"))
    np.testing.assert_allclose(again, stored, rtol=1e-6)
    convert_model(tmp_path / "m.gguf", tmp_path / "hf", format="hf")
    ids = expected("llama")["input_ids"]
    np.testing.assert_allclose(logits(open_model(tmp_path / "hf"), ids), logits(given, ids), rtol=1e-4, atol=1e-5)


def test_a_yarn_ramp_of_whole_pairs_is_what_llama_cpp_computes(tmp_path: Path) -> None:
    convert_model(copy("llama", tmp_path, rope_parameters=WHOLE, rope_scaling=None), tmp_path / "m.gguf")
    assert rope_of(open_model(tmp_path / "m.gguf")).truncate


@pytest.mark.parametrize(
    ("family", "config", "message"),
    [
        (
            "llama",
            {"rope_parameters": WHOLE | {"beta_fast": 2.0}, "rope_scaling": None},
            "beta_fast 32 and beta_slow 1",
        ),
        ("gemma2", {"attn_logit_softcapping": None}, "softcap=None: readers use 50.0"),
    ],
)
def test_what_llama_cpp_assumes_is_what_the_model_has(
    family: str, config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        convert_model(copy(family, tmp_path, **config), tmp_path / "m.gguf")


def test_a_window_is_named_where_llama_cpp_asks_for_one(tmp_path: Path) -> None:
    full = {"layer_types": ["full_attention", "full_attention"]}
    convert_model(copy("gpt_oss", tmp_path, **full), tmp_path / "m.gguf")
    metadata = GGUFFile(tmp_path / "m.gguf").metadata
    assert metadata["gpt-oss.attention.sliding_window"] == 256  # as long as the context
    assert "gpt-oss.attention.sliding_window_pattern" not in metadata  # llama.cpp ends where no layer has a window
    convert_model(TINY / "cohere2", tmp_path / "c.gguf", context=8)
    assert GGUFFile(tmp_path / "c.gguf").metadata["cohere2.attention.sliding_window"] == 256
    assert open_model(tmp_path / "c.gguf").context_length == 8
    convert_model(copy("gemma3", tmp_path, **full), tmp_path / "g.gguf")
    assert GGUFFile(tmp_path / "g.gguf").metadata["gemma3.attention.sliding_window"] == 0


def test_the_field_that_differs_is_named(tmp_path: Path) -> None:
    directory = copy("llama", tmp_path, rope_parameters=WHOLE | {"truncate": False}, rope_scaling=None)
    with pytest.raises(UnsupportedError, match=r"rope\.truncate=False: readers use True"):
        convert_model(directory, tmp_path / "m.gguf")


@pytest.mark.parametrize("original", [1000, 3000, 8192, 30_000])
@pytest.mark.parametrize("high", [1.0, 4.0])
def test_constants_are_found_in_the_factors_that_they_give(original: int, high: float) -> None:
    """Of Llama 3.1 and of Llama 4, which blends nothing; another context may give the same factors."""
    constants: dict[str, Any] = {"scaling": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": high}
    rope = Rope(dim=64, base=1e4, original_context=original, **constants)
    found = _llama3(rope_factors(rope), rope.base, rope.dim)
    assert found is not None
    again = dataclasses.replace(rope, original_context=found["original_max_position_embeddings"])
    np.testing.assert_allclose(rope_factors(again), rope_factors(rope), rtol=1e-5)
