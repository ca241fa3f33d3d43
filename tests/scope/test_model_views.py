"""What the views of models say is true: attention, tokens by layer, sizes, differences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from volumetric import load
from volumetric.base.errors import GenerationError, SpecError, UnsupportedError
from volumetric.builders import sequential
from volumetric.layers import MultiHeadAttention, Parallel
from volumetric.loaders import LoadedModel, open_model
from volumetric.loaders.archs import mixtral
from volumetric.loaders.generation_config import GenerationDefaults
from volumetric.loaders.hf_config import Config
from volumetric.network import INPUT, Params, WeightStore, initialise
from volumetric.network.weight_difference import MorphReport
from volumetric.run.lower import lower
from volumetric.scope import ScopeDocument
from volumetric.scope.document import encode_document
from volumetric.scope.model_attention import MAX_WEIGHTS, attention_view
from volumetric.scope.model_differences import weight_differences
from volumetric.scope.model_lens import lens_layers
from volumetric.scope.model_parts import model_blocks
from volumetric.scope.model_prompt import LayerAttention, trace_prompt
from volumetric.scope.model_steps import run_steps
from volumetric.scope.model_table import model_view
from volumetric.scope.model_tokens import token_texts, visible
from volumetric.scope.model_tower import MAX_NODES, tower_view
from volumetric.scope.model_views import model_views

FIXTURES = Path(__file__).parents[1] / "fixtures"
TINY, ENCODERS = FIXTURES / "hf_tiny", FIXTURES / "hf_encoders"
IDS = [5, 17, 33, 17, 60, 8, 91, 2, 40, 41, 42, 43, 9, 10, 12, 5, 5, 71, 72, 11]

ATTENTION = ["llama", "gemma2", "gemma3", "gpt2", "gpt_oss", "llama4", "mistral", "olmo2", "qwen3", "cohere_norms"]
ATTENTION += ["smollm3", "lfm2"]
"""Grouped keys, soft caps, windows, biases, sinks, chunks with temperatures, norms of one or all heads, no RoPE."""
HEADS = ["llama", "gemma2", "granite", "cohere", "falcon_h1", "gpt2", "mamba", "llama_untied_rope3", "qwen3_moe"]
HEADS += ["phi3_longrope"]
"""Tied and separate heads, soft caps, factors on embeddings, residuals and logits, biases, no attention at all."""


def tiny(name: str) -> LoadedModel:
    return open_model(TINY / name)


@pytest.mark.parametrize("name", ATTENTION)
def test_weights_of_attention_give_the_output_of_the_layer(name):
    _check_attention(tiny(name))


@pytest.mark.parametrize("name", ["bert_masked", "modernbert", "gemma3_both_ways"])
def test_weights_of_attention_in_both_directions(name):
    _check_attention(open_model(ENCODERS / name))


def _check_attention(model):
    """A · V · O, in NumPy from the weights that the view shows, is what the layer returns."""
    plan = lower(model.network, 64)
    values = {plan.inputs[INPUT]: np.array(IDS, np.int32)}
    checked = 0
    for result in run_steps(plan, lambda key: model.params[key].values(), {INPUT: np.array(IDS)}):
        step, spec = result.step, result.step.attrs.get("spec")
        values |= dict.fromkeys(step.outputs, result.output)
        if not isinstance(spec, MultiHeadAttention):
            assert result.attention is None
            continue
        weights = result.attention
        assert weights is not None
        w = {role: model.params[key].values() for role, key in step.params.items()}
        v = values[step.inputs[0]] @ w["v.weight"].T + w.get("v.bias", 0)
        v = v.reshape(len(IDS), spec.kv_heads, spec.width).repeat(spec.num_heads // spec.kv_heads, axis=1)
        assert weights.shape == (spec.num_heads, len(IDS), len(IDS))
        sums = weights.sum(-1)
        assert (sums < 1).all() if spec.sinks else np.allclose(sums, 1, atol=1e-6)
        if spec.causal:
            assert not np.triu(weights, 1).any()
        y = np.einsum("hts,shd->thd", weights, v).reshape(len(IDS), -1) @ w["o.weight"].T + w.get("o.bias", 0)
        np.testing.assert_allclose(y, result.output, rtol=0, atol=2e-5 * np.abs(y).max())
        checked += 1
    assert checked


@pytest.mark.parametrize("name", HEADS)
def test_the_last_row_of_the_lens_is_the_models_own_prediction(name):
    with load(TINY / name, device="reference") as model:
        trace = trace_prompt(model, IDS)
        own = model.logits(IDS)
    layers = lens_layers(trace)
    assert layers[-1].logits is not None
    assert layers[-1].label == f"block {len(layers) - 2}"
    np.testing.assert_allclose(layers[-1].logits, own, rtol=0, atol=1e-4 * np.abs(own).max())
    p = np.exp(own - own.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    np.testing.assert_array_equal(layers[-1].top[:, 0], own.argmax(-1))
    np.testing.assert_allclose(layers[-1].probability, -np.sort(-p, axis=1)[:, :10], atol=1e-4)
    np.testing.assert_allclose(layers[-1].entropy, -(p * np.log2(p)).sum(-1), atol=1e-3)


def test_every_row_of_the_lens_has_the_last_norm_the_tied_head_and_the_soft_cap():
    model = tiny("gemma2")
    trace = trace_prompt(model, IDS)
    gain, table = (model.params[key].values().astype(np.float64) for key in ("3.0.0.0/weight", "0.0.0.0/weight"))
    cap = model.config["final_logit_softcapping"]
    for layer in lens_layers(trace):
        x = trace.streams[layer.label].astype(np.float64)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + model.config["rms_norm_eps"]) * (1 + gain)
        logits = cap * np.tanh(x @ table.T / cap)
        p = np.exp(logits - logits.max(-1, keepdims=True))
        p = np.take_along_axis(p / p.sum(-1, keepdims=True), layer.top, 1)
        np.testing.assert_allclose(layer.probability, p, rtol=1e-3)
        np.testing.assert_array_equal(layer.top[:, 0], logits.argmax(-1))


def test_an_encoder_of_masked_tokens_has_a_lens_and_one_without_a_head_none():
    with load(ENCODERS / "bert_masked", device="reference") as model:
        own = model.logits(IDS)
        last = lens_layers(trace_prompt(model, IDS))[-1].logits
    assert last is not None
    np.testing.assert_allclose(last, own, atol=1e-4)
    for name in ("modernbert", "bert"):  # a norm behind the last block is no head
        with pytest.raises(UnsupportedError, match="does not end in a norm and a projection"):
            lens_layers(trace_prompt(open_model(ENCODERS / name), IDS))


def test_a_tower_has_all_weights_once_and_a_node_for_each_head_and_expert():
    model = tiny("mixtral")
    view = tower_view(model)
    scene = view.data["scene"]
    names, channels = scene["names"], scene["channels"]
    spec = next(spec for spec in model.network.layers.values() if isinstance(spec, MultiHeadAttention))
    mixture = next(spec for spec in model.network.layers.values() if isinstance(spec, Parallel))
    for block in ("block 0", "block 1"):
        assert sum(name.startswith(block) and ": head " in name for name in names) == spec.num_heads
        assert sum(name.startswith(block) and "key/value head" in name for name in names) == spec.kv_heads
        assert sum(name.startswith(block) and ": expert " in name for name in names) == len(mixture.branches)
    total = sum(int(np.prod(store.shape)) for store in model.params.values())
    assert channels["parameters"]["values"].sum() == total
    assert channels["bytes"]["values"].sum() == sum(store.nbytes for store in model.params.values())
    assert len({tuple(at) for at in scene["at"].tolist()}) == len(names)  # nothing hides anything
    # key/value head 1 is read by the query heads of its group, and no others
    place = {name: i for i, name in enumerate(names)}
    pair = place["block 0 1.0.0.1: key/value head 1"]
    readers = scene["edges"]["target"][scene["edges"]["source"] == pair]
    shared = spec.num_heads // spec.kv_heads
    assert [names[i] for i in readers] == [f"block 0 1.0.0.1: head {i}" for i in range(shared, 2 * shared)]


@pytest.mark.thorough
def test_a_tower_of_a_large_mixture_of_experts_stays_small():
    config = json.loads((TINY / "mixtral" / "config.json").read_text())
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 4, "hidden_size": 128}
    config |= {"num_hidden_layers": 32, "num_local_experts": 256, **heads}
    network = mixtral.build(Config(config, "config.json")).network
    model = LoadedModel(
        name="large", network=network, params=Params({}), tokenizer=None, chat_template=None,
        generation=GenerationDefaults(), context_length=0, path=Path("large"),
    )  # fmt: skip
    names = tower_view(model).data["scene"]["names"]
    assert 32 * (32 + 8) < len(names) <= MAX_NODES
    assert sum(": head " in name for name in names) == 32 * 32
    assert "block 31 32.0.0.4: experts 240–255" in names
    view = model_view(model)
    assert len(encode_document(ScopeDocument(title="", source="", views=(view,))).json) < 300_000


def test_a_network_without_tokens_stands_in_its_grid():
    network = sequential(4, 2, hidden=(8,))
    model = LoadedModel(
        name="net", network=network, params=initialise(network), tokenizer=None, chat_template=None,
        generation=GenerationDefaults(), context_length=0, path=Path("net"),
    )  # fmt: skip
    tower, table = model_views(model)
    assert tower.data["scene"]["channels"]["parameters"]["values"].tolist() == [40, 18]
    assert [row["parameters"] for row in table.data["rows"]] == [40, 18]
    with pytest.raises(UnsupportedError, match="reads numbers, not tokens"):
        model_views(model, [1, 2])


def test_the_table_reads_no_weights_and_counts_tied_ones_once():
    model = tiny("gemma2")

    def refuse():
        raise AssertionError("a weight was read")

    lazy = Params({key: WeightStore(store.shape, store.scheme, refuse) for key, store in model.params.items()})
    data = model_view(replace(model, params=lazy)).data
    assert sum(row["parameters"] for row in data["rows"]) == data["total"]["parameters"]
    assert sum(row["bytes"] for row in data["rows"]) == data["total"]["bytes"]
    head = next(row for row in data["rows"] if data["blocks"][row["block"]] == "head" and row["shared"])
    assert (head["shared"], head["parameters"]) == (["0.0.0.0"], 0)
    tower_view(replace(model, params=lazy))


def test_errors_are_those_of_the_weights_of_a_layer_and_of_a_head():
    reference, model = tiny("llama"), open_model(TINY / "llama", dtype="int4:g32")
    errors = weight_differences(lower(model.network), model.params, reference.params)
    row = next(row for row in model_view(model, errors).data["rows"] if row["what"] == "MLP, gated")
    keys = [f"{row['where']}/{part}.weight" for part in ("gate", "up", "down")]
    a, b = (np.concatenate([one.params[key].values().ravel() for key in keys]) for one in (reference, model))
    assert row["error"] == pytest.approx(MorphReport.between(a, b).nmse ** 0.5, rel=1e-6)
    scene = tower_view(model, errors).data["scene"]
    head = scene["channels"]["error"]["values"][scene["names"].index("block 1 2.0.0.1: head 2")]
    a, b = (one.params["2.0.0.1/q.weight"].values()[32:48] for one in (reference, model))
    assert head == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a), rel=1e-5)
    with pytest.raises(SpecError, match="no weight of the same place and shape"):
        weight_differences(lower(model.network), model.params, tiny("gpt_oss").params)


def test_damage_of_a_file_is_shown():
    model = tiny("llama")
    rows = model_view(replace(model, damage={"1.0.0.4/up.weight": 0.25, "1.0.0.4/down.weight": 0.5})).data["rows"]
    assert [(row["where"], row["damage"]) for row in rows if row["damage"] is not None] == [("1.0.0.4", 0.75)]


def test_what_differs_most_is_the_layer_that_was_changed():
    first = tiny("llama")
    changed = dict(first.params)
    key = "2.0.0.1/v.weight"
    values = changed[key].values()
    noise = np.random.default_rng(0).standard_normal(values.shape).astype(np.float32) * values.std()
    changed[key] = WeightStore.from_array(values + noise)
    views = model_views(replace(first, params=Params(changed)), IDS, first)
    assert [view.name for view in views] == ["tower", "model", "attention", "lens", "dna"]
    data = views[-1].data
    least = min(data["cells"], key=lambda cell: cell["similarity"])
    assert (least["path"], data["blocks"][least["block"]], least["column"]) == ("2.0.0.1", "block 1", "1")
    assert data["weights"]["keys"][0] == key
    assert data["weights"]["error"][0] == pytest.approx(np.linalg.norm(noise) / np.linalg.norm(values), rel=1e-4)
    assert data["weights"]["error"][1] == 0
    similarity = views[0].data["scene"]["channels"]["similarity"]["values"]
    assert "2.0.0.1" in views[0].data["scene"]["names"][int(similarity.argmin())]


def test_models_of_other_shapes_are_compared_by_dna_alone():
    data = model_views(tiny("llama"), other=tiny("gpt_oss"))[-1].data
    assert data["weights"]["keys"] == []
    assert max(cell["similarity"] or 0 for cell in data["cells"]) == 0


def test_long_prompts_are_cut_and_pages_bounded():
    trace = trace_prompt(tiny("llama"), [7] * 200)
    data = attention_view(trace).data
    assert (len(data["tokens"]), data["leftOut"]) == (128, 72)
    layer = trace.attention[0]
    wide = LayerAttention(
        where="1.0.0.1", block="block 0", spec=replace(layer.spec, num_heads=4096), weights=layer.weights
    )
    data = attention_view(replace(trace, attention=(wide,))).data
    rows = len(data["tokens"])
    assert 4096 * rows**2 <= MAX_WEIGHTS < 4096 * (rows + 1) ** 2
    assert data["leftOut"] == 200 - rows


def test_texts_of_tokens_can_be_seen_and_are_texts():
    assert visible(" a\n\t\u202e\x00</script>") == "␣a⏎⇥\\u{202e}\\u{0}</script>"
    assert visible("x" * 100) == "x" * 40 + "…"
    assert token_texts(None, [3, 4]) == ["#3", "#4"]
    model = open_model(ENCODERS / "bert_masked")
    assert model.tokenizer is not None
    trace = trace_prompt(model, model.tokenizer.encode("the cat"))
    texts = token_texts(model.tokenizer, trace.ids)
    assert (texts[0], texts[-1]) == ("[CLS]", "[SEP]")


def test_a_model_with_odd_weights_is_shown():
    model = tiny("llama")
    params = dict(model.params)
    params["2.0.0.4/up.weight"] = WeightStore.from_array(np.full((160, 64), np.nan, np.float32))
    views = model_views(replace(model, params=Params(params)), IDS)
    encode_document(ScopeDocument(title="", source="", views=tuple(views)))
    probability = views[-1].data["probability"]
    assert np.isnan(probability[2]).all()
    assert np.isfinite(probability[1]).all()


def test_prompts_that_cannot_be_shown_are_refused():
    model = tiny("llama")
    with pytest.raises(GenerationError, match="has no tokenizer"):
        model_views(model, "some text")
    with pytest.raises(GenerationError, match="the prompt is empty"):
        model_views(model, [])
    with pytest.raises(GenerationError):
        model_views(model, [10**6])
    views = model_views(tiny("mamba"), IDS)  # a view that the model has nothing for is left out
    assert [view.name for view in views] == ["tower", "model", "lens"]


def test_blocks_are_named_as_their_files_name_them():
    labels = [block.label for block in model_blocks(lower(open_model(ENCODERS / "modernbert_masked").network))]
    assert labels == ["embedding", "block 0", "block 1", "block 2", "block 3", "head"]
