"""Nomic's BERT: post-norm blocks that see both ways, with RoPE, SwiGLU and fused projections without biases."""

from __future__ import annotations

from volumetric.loaders.gguf_archs.bert import read_encoder, write_encoder
from volumetric.loaders.gguf_family import GGUFFamily

FAMILY = GGUFFamily(
    model_type="nomic_bert",
    auto_class="NomicBertModel",
    inner={
        "attn.Wqkv": "attn_qkv",
        "attn.out_proj": "attn_output",
        "norm1": "attn_output_norm",
        "mlp.fc11": "ffn_up",
        "mlp.fc12": "ffn_gate",
        "mlp.fc2": "ffn_down",
        "norm2": "layer_output_norm",
    },
    outer={
        "nomic_bert.embeddings.word_embeddings": "token_embd",
        "nomic_bert.embeddings.token_type_embeddings": "token_types",
        "nomic_bert.emb_ln": "token_embd_norm",
    },
    stack="nomic_bert.encoder.layers",
    renamed={"num_key_value_heads": None},
    epsilon="layer_norm_eps",
    biases=frozenset({"attn_output_norm", "layer_output_norm"}),
    singles=frozenset({"token_types.weight"}),
    head="shared",
    values=read_encoder,
    metadata=write_encoder,
)
