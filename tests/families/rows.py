"""The table of architectures: how a tiny model of each is made, and what is to become of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Sizes by the names that configs have for them.
SIZES: Mapping[str, int] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_attention_heads", "n_head", "n_heads", "num_heads"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "num_key_value_heads"), 2),
    **dict.fromkeys(("intermediate_size", "d_ff", "d_inner", "ffn_dim", "hidden_dim", "moe_intermediate_size"), 64),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "shared_expert_intermediate_size"), 64),
    **dict.fromkeys(("head_dim", "d_head", "d_kv"), 16),
    **dict.fromkeys(("num_experts", "num_local_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok",), 2),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 96),
    "word_embed_proj_dim": 32,
}


@dataclass(frozen=True)
class Row:
    """An architecture, by its ``model_type``.

    ``tokenizer`` is a class of transformers, by default the one that its mapping names. ``refused`` is a part of the
    reason; empty if it works. ``config`` are settings other than sizes. Random weights are ``larger`` than transformers
    makes them, so that attention has something to choose. ``rare`` rows are tried by ``make families`` alone: decoders
    above all, which few people ask questions of passages.
    """

    kind: str
    tokenizer: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
    larger: float = 6.0
    rare: bool = False


#: RoBERTa and its kin count positions from behind the padding id on, which is 1 here.
SHIFTED = {"max_position_embeddings": 98}

#: Windows of attention that are shorter than the rows read.
WINDOW = {"sliding_window": 16}

ROWS = (
    Row("albert"),
    Row("arcee", "GPT2Tokenizer", rare=True),
    Row("bart"),
    Row("bert"),
    Row("big_bird"),
    Row("bigbird_pegasus", "AlbertTokenizer", rare=True),
    Row("bloom", "GPT2Tokenizer"),
    Row("camembert", config=SHIFTED),
    Row("canine", refused="reads characters"),
    Row("convbert"),
    Row("data2vec-text", config=SHIFTED),
    Row("deberta", config={"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    Row(
        "deberta-v2",
        config={
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_buckets": 16,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "position_biased_input": False,
            "conv_kernel_size": 3,
        },
    ),
    Row("diffllama", "GPT2Tokenizer", rare=True),
    Row("distilbert"),
    Row("electra", config={"embedding_size": 16}),
    Row("ernie"),
    Row("exaone4", "GPT2Tokenizer", config=WINDOW, rare=True),
    Row("falcon", "GPT2Tokenizer", rare=True),
    Row("flaubert", refused="fast one"),
    Row("fnet", refused="Fourier"),
    Row("funnel", refused="pools"),
    Row("gpt2"),
    Row("gpt_neo", config={"attention_types": [[["global", "local"], 1]], "window_size": 16}, rare=True),
    Row("gpt_neox"),
    Row("gptj", config={"rotary_dim": 8}, rare=True),
    Row("ibert", config=SHIFTED),
    Row("jina_embeddings_v3"),
    Row("layoutlmv2", refused="places of words"),
    Row("layoutlmv3", refused="places of words"),
    Row("led", config={"attention_window": [16, 16], "max_encoder_position_embeddings": 96}),
    Row("lilt", refused="places of words"),
    Row("llama", "LlamaTokenizer"),
    Row("longformer", config={**SHIFTED, "attention_window": [16, 32], "sep_token_id": 2}),
    Row("luke", "RobertaTokenizer", config={**SHIFTED, "entity_vocab_size": 8, "entity_emb_size": 8}),
    Row("lxmert", refused="pictures"),
    Row("markuplm", refused="HTML"),
    Row("mbart"),
    Row("megatron-bert"),
    Row("minimax", "GPT2Tokenizer", rare=True),
    Row("ministral", "GPT2Tokenizer", config=WINDOW, rare=True),
    Row("ministral3", "GPT2Tokenizer", config=WINDOW, rare=True),
    Row("mistral", "LlamaTokenizer", config=WINDOW),
    Row("mixtral", "GPT2Tokenizer", config=WINDOW, rare=True),
    Row("mobilebert", config={"intra_bottleneck_size": 16, "embedding_size": 16}),
    Row("modernbert", "DebertaTokenizer", config={"local_attention": 16, "global_attn_every_n_layers": 2}),
    Row("mpnet", config=SHIFTED),
    Row("mpt", config={"max_seq_len": 96}, rare=True),
    Row("mra", refused="CUDA"),
    Row("mt5", config={"decoder_start_token_id": 0}, larger=1.5, rare=True),
    Row("mvp", rare=True),
    Row("nemotron", "GPT2Tokenizer", rare=True),
    Row("nystromformer", "AlbertTokenizer", config={"num_landmarks": 64, "segment_means_seq_len": 64}),
    Row("opt", rare=True),
    Row("qwen2", rare=True),
    Row("qwen2_moe", rare=True),
    Row("qwen3"),
    Row("qwen3_moe", rare=True),
    Row("qwen3_next", config={"num_hidden_layers": 4}, rare=True),
    Row("reformer", refused="at random"),
    Row("rembert"),
    Row("roberta", config=SHIFTED),
    Row("roberta-prelayernorm", config=SHIFTED),
    Row("roc_bert", refused="fast one"),
    Row("roformer", "BertTokenizer"),
    Row("seed_oss", "GPT2Tokenizer", rare=True),
    Row("smollm3", "GPT2Tokenizer", rare=True),
    Row("splinter"),
    Row("squeezebert"),
    Row("t5", config={"decoder_start_token_id": 0}, larger=1.5),
    Row("ultrabert", "GPT2Tokenizer", rare=True),
    Row("umt5", "T5Tokenizer", config={"decoder_start_token_id": 0}, larger=1.5, rare=True),
    Row("xlm", refused="fast one"),
    Row("xlm-roberta", config=SHIFTED),
    Row("xlm-roberta-xl", "XLMRobertaTokenizer", config=SHIFTED),
    Row("xlnet"),
    Row("xmod", config={**SHIFTED, "default_language": "en_XX"}),
    Row("yoso", refused="TorchScript"),
)
