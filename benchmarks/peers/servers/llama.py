"""llama.cpp's embedding server, from the wheel of xllamacpp, with the checkpoint as a GGUF file in fp32.

    python -m benchmarks.peers.servers.llama PORT

https://github.com/ggml-org/llama.cpp/tree/master/tools/server: one thread, 16 slots of 512 tokens.
"""

import json
import signal
import sys
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import xllamacpp
from safetensors.numpy import load_file

from benchmarks.peers.servers.given import given, tell_loaded

#: Texts at a time, and tokens of each.
SLOTS, TOKENS = 16, 512

#: What llama.cpp writes before a word's first part; BERT writes "##" before the others.
FIRST = "\u2581"


def write_gguf(checkpoint: Path, path: Path) -> None:
    """Write a BERT with mean pooling as llama.cpp's convert_hf_to_gguf.py does, which no wheel has."""
    config, tokenizer = (json.loads((checkpoint / name).read_text()) for name in ("config.json", "tokenizer.json"))
    places, special = tokenizer["model"]["vocab"], {each["content"] for each in tokenizer["added_tokens"]}
    words = sorted(places, key=places.get)
    ids = {"bos": "[CLS]", "eos": "[SEP]", "sep": "[SEP]", "unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"}
    file = gguf.GGUFWriter(path, "bert")
    for name, value in {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "head_count": config["num_attention_heads"],
        "block_count": config["num_hidden_layers"],
        "layer_norm_eps": config["layer_norm_eps"],
        "causal_attention": False,
        "pooling_type": gguf.PoolingType.MEAN,
        "tokenizer_model": "bert",
        "tokenizer_pre": "jina-v2-en",
        "token_type_count": config["type_vocab_size"],
        "token_list": [each if each in special else (FIRST + each).removeprefix(FIRST + "##") for each in words],
        "token_types": [gguf.TokenType.CONTROL if each in special else gguf.TokenType.NORMAL for each in words],
        **{f"{name}_token_id": places[word] for name, word in ids.items()},
    }.items():
        getattr(file, f"add_{name}")(value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config["num_hidden_layers"])
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        if "pooler" not in name and (known := names.get_name(name, try_suffixes=(".weight", ".bias"))):
            file.add_tensor(known, tensor.astype(np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def main(port: str) -> None:
    """Serve until a signal."""
    path = Path(given().folder) / f"{port}.gguf"
    write_gguf(Path(given().checkpoint), path)
    asked = xllamacpp.CommonParams()
    asked.model.path, asked.embedding, asked.hostnames, asked.port = str(path), True, ["127.0.0.1"], int(port)
    asked.n_parallel, asked.n_ctx, asked.n_batch, asked.n_ubatch = SLOTS, SLOTS * TOKENS, 4 * TOKENS, 4 * TOKENS
    asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(asked)
    tell_loaded()
    with suppress(KeyboardInterrupt):
        signal.pause()
    del server


if __name__ == "__main__":
    main(*sys.argv[1:])
