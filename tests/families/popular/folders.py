"""Write the files of a popular model as the hub has them."""

import json
from pathlib import Path
from typing import Any

from tests.families.networks import make_config, tokenizer_of
from tests.families.popular.rows import CONFIGS, Popular, Sentences
from tests.families.rows import SIZES, Row
from tests.families.tokenizers import make_tokenizer
from tests.tasks.test_chat_ranking import judging

#: Random weights are so much larger than transformers makes them, so that attention has something to choose.
LARGER, LARGER_T5 = 6.0, 1.5

#: The flags of a pooling; the last two are those of versions 3 and later.
FLAGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")

LIBRARY = "sentence_transformers.models"

SIZE = 32

SHARD = "60KB"


def save_popular(row: Popular, folder: Path) -> Path:
    """Save a small random network with the files of a row's model; return the folder, named as the model."""
    folder = folder / row.name.rpartition("/")[2]
    folder.mkdir(parents=True)
    if row.sentences and "LogitScore" in row.sentences.modules:
        return judging(folder)
    if row.sentences:
        _save_sentences(row.sentences, folder)
        if row.sentences.modules == ("StaticEmbedding",):
            _save_static(folder / "0_StaticEmbedding")
            return folder
    fast = _save_tokenizer(row, folder)
    own = ("auto_map", "model_type", "architectures")
    said = {**CONFIGS[row.kind], **{key: value for key, value in row.config.items() if key not in own}}
    made = make_config(Row(row.kind, config=said), fast)
    _save_network(row, folder, made)
    sizes = {
        key: value for key, value in made.to_dict().items() if key in SIZES or key.endswith(("token_id", "b_size"))
    }
    kind = {"_name_or_path": row.name, "architectures": [row.network], "model_type": row.kind, "torch_dtype": row.dtype}
    _write(folder / "config.json", {**kind, **sizes, **said, "torch_dtype": row.dtype, **row.config})
    return folder


def _save_tokenizer(row: Popular, folder: Path) -> Any:
    """Save a small tokenizer in the row's form; return it."""
    from transformers import AutoTokenizer

    name = row.tokenizer or tokenizer_of(row.kind)
    if row.form == "pieces":
        from tests.families.pieces import FAMILIES, save_pieces

        save_pieces(folder, next(family for family in FAMILIES if family.kind == row.kind))
        _write(folder / "config.json", {"model_type": row.kind})
        fast = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    else:
        told = row.told or {}
        fast = make_tokenizer(name, **{key: told[key] for key in ("do_lower_case", "pad_token") if key in told})
        _add(fast, *row.adds)
        fast.save_pretrained(folder)
        _save_vocabulary(row, fast, folder)
    special = fast.special_tokens_map
    _write(folder / "special_tokens_map.json", special)
    (folder / "tokenizer_config.json").unlink(missing_ok=True)
    if row.told is not None:
        _write(folder / "tokenizer_config.json", {"tokenizer_class": name, **special, **row.told})
    return fast


def _save_vocabulary(row: Popular, fast: Any, folder: Path) -> None:
    """Replace tokenizer.json by the older files, if the row has these."""
    vocab = fast.get_vocab()
    if row.form == "words":
        (folder / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.__getitem__)) + "\n")
    elif row.form == "merges":
        _write(folder / "vocab.json", vocab)
        merges = json.loads(fast.backend_tokenizer.to_str())["model"]["merges"]
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *(" ".join(merge) for merge in merges)]) + "\n")
    if row.form != "json":
        (folder / "tokenizer.json").unlink()


def _add(fast: Any, before: str, behind: str) -> None:
    """Have a tokenizer put tokens before and behind a text, as the file of a decoder says it."""
    from tokenizers.processors import TemplateProcessing

    if before or behind:
        specials = [(token, fast.convert_tokens_to_ids(token)) for token in {before, behind} if token]
        one, two = (" ".join(part for part in (before, f"${each}", behind) if part) for each in ("A", "B:1"))
        made = TemplateProcessing(single=one, pair=f"{one} {two}", special_tokens=specials)
        fast.backend_tokenizer.post_processor = made


def _save_network(row: Popular, folder: Path, config: Any) -> None:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    transformers.set_seed(7)
    network = getattr(transformers, row.network)._from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.mul_(LARGER_T5 if row.kind == "t5" else LARGER)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.02)
    network.to(getattr(torch, row.dtype))
    network.save_pretrained(folder, **({"max_shard_size": SHARD} if row.weights == "shards" else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    file = folder / "model.safetensors"
    if row.refused and "auto_map" in row.config:
        save_file({key.replace(".layer.", ".layers."): value for key, value in load_file(file).items()}, file)
    if row.weights == "bin":
        state = load_file(file)
        # Versions of that time saved this too.
        state[f"{next(iter(state)).partition('embeddings')[0]}embeddings.position_ids"] = torch.arange(512)[None]
        torch.save(state, folder / "pytorch_model.bin")
        file.unlink()


def _save_sentences(its: Sentences, folder: Path) -> None:
    """Write the files of sentence-transformers, as the versions of the model's time do."""
    import torch

    kinds = its.modules or ("Transformer", "Pooling", *["Dense"] * len(its.dense), *["Normalize"] * its.normalize)
    paths = ["" if kind.endswith("Transformer") else f"{at}_{kind}" for at, kind in enumerate(kinds)]
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": kind if "." in kind else f"{LIBRARY}.{kind}"}
        for at, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    _write(folder / "modules.json", modules)
    later = "similarity_fn_name" in (its.about or {})
    modes: dict[str, Any] = {f"pooling_mode_{flag}": flag == its.pooling for flag in FLAGS[: 6 if later else 4]}
    _write(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": SIZE, **modes, **({"include_prompt": True} if later else {})},
    )
    if its.longest:
        said = {"max_seq_length": its.longest, "do_lower_case": its.lower}
        _write(folder / "sentence_bert_config.json", said)
    if its.about is not None:
        _write(folder / "config_sentence_transformers.json", its.about)
    torch.manual_seed(5)
    inputs = SIZE
    for at, curved in enumerate(its.dense, start=2):
        layer = torch.nn.Linear(inputs, inputs - 8, bias=curved)
        function = "activation.Tanh" if curved else "linear.Identity"
        said = {"in_features": inputs, "out_features": inputs - 8, "bias": curved}
        _write(folder / f"{at}_Dense" / "config.json", {**said, "activation_function": f"torch.nn.modules.{function}"})
        state = {f"linear.{key}": value for key, value in layer.state_dict().items()}
        torch.save(state, folder / f"{at}_Dense" / "pytorch_model.bin")
        inputs -= 8


def _save_static(folder: Path) -> None:
    """Save a table of vectors and its tokenizer."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    fast = make_tokenizer("BertTokenizer")
    fast.backend_tokenizer.save(str(folder / "tokenizer.json"))
    made = torch.randn(len(fast), SIZE, generator=torch.Generator().manual_seed(5))
    save_file({"embedding.weight": made}, folder / "model.safetensors")


def _write(path: Path, said: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(said, indent=2) + "\n")
