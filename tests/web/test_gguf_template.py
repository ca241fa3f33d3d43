"""Templates of GGUF files: with the file they are the plain export, byte for byte."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import narrowed
from tests.loaders.byte_bpe import MERGES, TOKENS
from tests.loaders.tiny import TINY
from tests.web.exports import buffers_of, manifest_of
from tests.web.gguf_files import CHAT, write_llama
from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.cli import main
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.dtypes import Scheme
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.gguf_tensors import pack_tensor
from volumetric.loaders.gguf_types import GGUF_TYPES, TYPE_NUMBERS
from volumetric.loaders.loaded_model import open_model
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids
from volumetric.web import export_network
from volumetric.web.moved_bits import REST, UNITS, MovedBits, moved_bits
from volumetric.web.opened_template import opened_template
from volumetric.web.replayed_network import ReplayedNetwork
from volumetric.web.row_loops import rows_as_loops, rows_of_loops
from volumetric.web.save_web import save_web

FLOATS = ("F32", "F16", "BF16")
SHORT = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4")
"""Types with blocks of 32."""
LONG = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "TQ2_0")
"""Types with blocks of 256."""


def export(source: Path, folder: Path, **options: Any) -> None:
    """Export the variant that runs everywhere, unless others are named."""
    export_network(source, folder, **{"variants": ("plain",), **options})


@pytest.mark.parametrize("kind", [*FLOATS, *SHORT, *LONG])
def test_moved_bits_lay_rows_out_as_the_engine_does(kind: str) -> None:
    table = moved_bits(kind)
    assert table is not None
    assert MovedBits.of(json.loads(json.dumps(table.described()))) == table
    type_, layout = GGUF_TYPES[TYPE_NUMBERS[kind]], FORMATS[str(Scheme.parse(kind))]
    rows = np.random.default_rng(3).integers(0, 256, (50, 11 * type_.block_bytes)).astype(np.uint8)
    laid = layout.lay_out(pack_tensor(rows.reshape(-1), kind, (50, 11 * type_.block)))
    expected = {part: words.tobytes() for part, words in zip((UNITS, REST), laid, strict=True) if words is not None}
    assert {part: table.lay_out(part, rows).tobytes() for part in table.parts} == expected


def test_types_that_do_more_than_to_move_bits_have_no_table() -> None:
    assert {kind for kind in TYPE_NUMBERS if moved_bits(kind)} == {*FLOATS, *SHORT, *LONG}
    assert moved_bits("TQ1_0") is None, "its bytes are base-3 digits"


def test_loops_are_the_rows_that_they_list() -> None:
    draw = np.random.default_rng(5)
    heads = np.arange(96).reshape(3, -1, 2).swapaxes(1, 2).reshape(-1)
    columns = np.arange(60).reshape(5, 12)[:, 3:7].reshape(-1)
    for sources in (np.arange(7), heads, np.array([4]), columns, draw.permutation(40)):
        targets = np.sort(draw.choice(500, len(sources), replace=False))
        for to in (targets, np.arange(len(sources)) + 5):
            loops = rows_as_loops(sources, to)
            assert loops is not None
            np.testing.assert_array_equal(rows_of_loops(loops), [sources, to])
    assert rows_as_loops(heads, np.arange(96)) == [[0, 0, [[3, 32, 32], [2, 1, 16], [16, 2, 1]]]]


def check_law(file: Path, home: Path, **options: Any) -> dict[str, Any]:
    """Check that the template and the file are the plain export; return network.json of the template."""
    with np.errstate(all="ignore"):  # random scales may be no numbers
        export(file, home / "plain", **options)
    export(file, home / "template", template=True, **options)
    plain, template = manifest_of(home / "plain"), manifest_of(home / "template")
    for ours, theirs in zip(template["variants"], plain["variants"], strict=True):
        same = [{key: value for key, value in one.items() if key != "buffers"} for one in (ours, theirs)]
        assert same[0] == same[1]
    filled = 0
    for (name, ours), (other, theirs) in zip(
        buffers_of(home / "template", file), buffers_of(home / "plain"), strict=True
    ):
        assert name == other
        np.testing.assert_array_equal(ours, theirs, name)
        filled += ours.any()
    assert filled > len(template["template"]["fills"]) > 5
    for key in plain.keys() - {"title", "origin", "pieces", "variants"}:
        assert plain[key] == template[key], key
    assert sum(one["bytes"] for one in template["pieces"]) <= 1 << 16, "tables of the positions, and no weights"
    return template


def test_every_type_gives_the_bytes_of_the_plain_export(tmp_path: Path) -> None:
    """Of random bits; queries, keys and values of several types are stacked, gate and up of one type stand abreast."""
    kinds, names = iter([*SHORT, *LONG, "BF16"]), ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_", "ffn_down")
    types = {f"blk.{layer}.{name}": kind for layer in range(3) for name, kind in zip(names, kinds, strict=False)}
    file = write_llama(tmp_path / "m.gguf", {"": "F16", **types}, drawn=True, layers=3, heads=2, kv=1)
    types = check_law(file, tmp_path)["template"]["types"]
    assert {GGUF_TYPES[int(number)].name for number in types} == {*SHORT, *LONG, "F16", "BF16"}


def test_odd_widths_and_types_mixed_in_a_layer_give_the_bytes_of_the_plain_export(tmp_path: Path) -> None:
    """Rows of three and five blocks, whose scales begin in the middle of words, and a head of its own."""
    types = {"": "Q4_0", "attn_v": "Q8_0", "attn_output": "Q5_0", "blk.1.": "F32", "blk.2.": "BF16", "output": "MXFP4"}
    file = write_llama(
        tmp_path / "m.gguf", types, drawn=True, tied=False, layers=3, hidden=96, heads=3, kv=1, ff=160, freqs=True
    )
    template = check_law(file, tmp_path, variants=("subgroups", "plain"))
    assert list(template["template"]["fixed"]) == ["rope_freqs.weight"]
    assert (template["title"], template["origin"]["name"]) == ("Small llama", "Small llama")


@pytest.mark.parametrize(
    "family",
    [
        "gemma3",
        "qwen2",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("gpt2", "gemma2", "phi3", "phi3_longrope", "gpt_neox", "gpt_oss", "cohere", "lfm2",
                         "llama4_sparse", "granitemoe", "qwen2_moe", "olmo2", "stablelm_parallel")
        ),
    ],
)  # fmt: skip
def test_families_give_the_bytes_of_the_plain_export(family: str, tmp_path: Path) -> None:
    convert_model(TINY / family, tmp_path / "m.gguf", dtype="q8_0", allow_differences=True)
    check_law(tmp_path / "m.gguf", tmp_path)


def test_tokens_are_those_of_the_file_on_the_reference(tmp_path: Path) -> None:
    types = {"": "Q4_0", "token_embd": "Q8_0"}
    file = write_llama(tmp_path / "m.gguf", types, hidden=64, heads=2, kv=1, ff=96)
    export(file, tmp_path / "x", template=True)
    model = open_model(file)
    executable = ReferenceDevice().compile(lower(model.network, 64), model.params, RunOptions(context=64))
    state, ids = executable.new_state(), np.arange(5, 14, dtype=np.int32)
    executable.forward(state, ids)
    replayed = ReplayedNetwork(tmp_path / "x", narrowed("native").context, gguf=file)
    replayed.feed(ids)
    tokens = list(islice(replayed.picked(20), 12))
    assert tokens == list(islice(greedy_ids(executable, state, 20), 12))
    assert len(set(tokens)) > 2
    replayed.close()


def test_the_contents_of_tensors_are_not_read(tmp_path: Path) -> None:
    """A file whose tensors are a hole has the same template; changes of the head are changes of the template."""
    file = write_llama(tmp_path / "m.gguf", {"": "Q4_K"}, heads=2, kv=1, layers=1)
    export(file, tmp_path / "x", template=True)
    size, head = file.stat().st_size, file.read_bytes()[: open_head(file)]
    (tmp_path / "hole.gguf").write_bytes(head)
    os.truncate(tmp_path / "hole.gguf", size)
    export(tmp_path / "hole.gguf", tmp_path / "y", template=True)
    assert manifest_of(tmp_path / "x") == manifest_of(tmp_path / "y")


def open_head(file: Path) -> int:
    """Bytes before the first tensor."""
    from volumetric.loaders.gguf import GGUFFile

    return min(entry.start for entry in GGUFFile(file).entries.values())


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template")
    export(write_llama(home / "m.gguf", {"": "Q4_0"}, **SMALL), home / "x", template=True)
    return home / "x"


SMALL = {"hidden": 64, "heads": 2, "kv": 1, "ff": 96, "layers": 1, "freqs": True}


@pytest.mark.parametrize(
    ("types", "changes", "difference"),
    [
        ({"": "Q4_0"}, {"ff": 128}, r"llama\.feed_forward_length is 128, expected 96"),
        ({"": "Q4_0"}, {"layers": 2}, r"llama\.block_count is 2, expected 1"),
        ({"": "Q4_0", "attn_v": "Q8_0"}, {}, r"tensor blk\.0\.attn_v\.weight is Q8_0 64×32, expected Q4_0 64×32"),
        ({"": "Q4_0"}, {"tied": False}, r"it has tensor output\.weight, and the template does not"),
        ({"": "Q4_0"}, {"llama__rope__freq_base": np.float32(5e5)}, r"llama\.rope\.freq_base is 500000\.0, expected"),
        ({"": "Q4_0"}, {"freqs": False}, r"it has no tensor rope_freqs\.weight"),
        ({"": "Q4_0"}, {"freqs": 2.0}, r"tensor rope_freqs\.weight has other contents"),
        ({"": "Q4_0"}, {"tokenizer__ggml__pre": None}, r"it has no tokenizer\.ggml\.pre"),
        ({"": "Q4_0"}, {"tokenizer__ggml__add_bos_token": True}, r"it has tokenizer\.ggml\.add_bos_token, and"),
        ({"": "Q4_0"}, {"tokenizer__ggml__merges": MERGES[:-1]}, r"tokenizer\.ggml\.merges has 6 elements, expected 7"),
        ({"": "Q4_0"}, {"tokenizer__ggml__tokens": [*TOKENS[:-1], "x"]}, r"tokenizer\.ggml\.tokens has other contents"),
        ({"": "Q4_0"}, {"general__architecture": "qwen3"}, r"general\.architecture is 'qwen3', expected 'llama'"),
    ],
)  # fmt: skip
def test_another_file_is_refused_with_the_first_difference(
    types: dict[str, str], changes: dict[str, Any], difference: str, template: Path, tmp_path: Path
) -> None:
    file = write_llama(tmp_path / "other.gguf", types, **{**SMALL, **changes})
    with pytest.raises(CheckpointError, match=rf"other\.gguf does not fit .* for Small llama: {difference}") as error:
        opened_template(manifest_of(template), file)
    assert "volumetric export FILE.gguf OUT --web --template" in str(error.value.hint)


def test_a_file_may_have_another_name_and_chat_template(template: Path, tmp_path: Path) -> None:
    text = CHAT.replace("</s>", "")
    changes = {"general__name": "Tuned", "tokenizer__chat_template": text, "general__file_type": np.uint32(2)}
    file = write_llama(tmp_path / "other.gguf", {"": "Q4_0"}, **SMALL, **changes)
    manifest = manifest_of(template)
    opened = opened_template(manifest, file)
    assert opened is not None
    assert opened.language(manifest["language"]) == {**manifest["language"], "chat_template": text}
    without = {**manifest["language"], "eos": []}
    assert opened.language(without)["eos"] == [], "this template writes no token that ends a turn"
    original = opened_template(manifest, template.parent / "m.gguf")
    assert original is not None
    assert original.language(without) == {**without, "chat_template": CHAT, "eos": [1]}


def test_templates_need_files_and_exports_do_not(template: Path) -> None:
    manifest = manifest_of(template)
    with pytest.raises(SpecError, match="is a template"):
        opened_template(manifest, None)
    with pytest.raises(SpecError, match="has its own weights"):
        opened_template({"title": "whole"}, template.parent / "m.gguf")


def test_the_command_writes_a_page_or_says_what_is_wrong(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(template.parent / "m.gguf")
    for arguments, sentence in (
        (["page.html", "--single-file"], "--single-file needs them"),
        (["page", "--dtype", "q8_0"], "--dtype needs them"),
        (["page", "--learn"], "--learn needs them"),
    ):
        assert main(["export", file, *arguments, "--web", "--template"]) == 2
        assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main(["export", file, "page", "--web", "--template", "--licence", "CC0-1.0"]) == 0
    assert "Small llama as a page (chat)" in capsys.readouterr().out
    written = manifest_of(tmp_path / "page")
    assert written["template"] == manifest_of(template)["template"]
    assert written["origin"]["licence"] == "CC0-1.0"
    assert (tmp_path / "page" / "views" / "chat.js").is_file()


def test_what_has_no_template_is_refused_by_name(tmp_path: Path) -> None:
    file = write_llama(tmp_path / "m.gguf", {"": "Q4_0", "ffn_down": "TQ1_0"}, heads=2, kv=1, layers=1, drawn=True)
    decoded = write_llama(tmp_path / "d.gguf", {"": "Q4_0", "ffn_down": "IQ2_S"}, heads=2, kv=1, layers=1, drawn=True)
    mixed = write_llama(tmp_path / "x.gguf", {"": "Q4_0", "ffn_up": "Q8_0"}, heads=2, kv=1, layers=1, drawn=True)
    convert_model(TINY / "mamba2", tmp_path / "mamba2.gguf", allow_differences=True)
    for source, message in (
        (file, r"tensor 'blk\.0\.ffn_down\.weight' of .*m\.gguf has the type TQ1_0"),
        (decoded, r"tensor 'blk\.0\.ffn_down\.weight' of .*d\.gguf has the type IQ2_S"),
        (mixed, r"gate\.weight \+ .*up\.weight of Small llama is computed from the file's tensors"),
        (tmp_path / "mamba2.gguf", r"computes weights from the numbers of blk\.0\.ssm_a"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            export(source, tmp_path / "out", template=True)
    refused: list[tuple[Path, dict[str, Any], str]] = [
        (TINY / "llama", {}, "written from a GGUF file"),
        (file, {"dtype": "q8_0"}, "no weights that could become q8_0"),
        (file, {"learn": True}, "does not learn"),
    ]
    for source, options, message in refused:
        with pytest.raises(SpecError, match=message):
            export_network(source, tmp_path / "out", template=True, **options)
    with pytest.raises(SpecError, match="a template is a folder"):
        save_web(file, tmp_path / "out.html", single_file=True, template=True)
    assert not (tmp_path / "out").exists()
