"""Damage to a model's files, drawn at random: left out, cut, doubled, swapped or replaced, or one value changed."""

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from corelane.artifacts.manifest import Artifact
from corelane.engine.task import Query
from corelane.tasks.feature_extraction.wire import EmbeddingOptions
from corelane.tasks.text_classification.wire import ClassificationOptions
from corelane.tasks.text_ranking.wire import RankingOptions
from tests.families.pieces import FAMILIES as PIECES
from tests.families.pieces import save_network
from tests.tasks.tiny import TASKS, answer, save_task, save_tiny

#: What a file is replaced by.
CONTENTS = (
    b"",
    b"[]",
    b"null",
    b"{}",
    b"no JSON",
    b"\x80\x02\xff\x00" * 9,
    b"[" * 9999,
    b'{"a": 1}',
    b"\xef\xbb\xbf{}",
)

#: What a value of JSON is replaced by.
VALUES: Sequence[Any] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 10**9, 10**30, -(10**18), 0.5, 1e308, float("nan"), float("inf")),
    *("", "0", "text", "../..", [], {}, [None], ["a"], [[]], {"a": 1}, {"0": None}),
)

#: The modules of an embedding model, and the settings of each.
MODULES = {
    "Transformer": ("", None),
    "Pooling": ("1_Pooling", {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}),
    "Dense": ("2_Dense", {"in_features": 32, "out_features": 16, "bias": True}),
    "Normalize": ("3_Normalize", {}),
}

SETTINGS = {
    "modules.json": [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, (path, _)) in enumerate(MODULES.items())
    ],
    "sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": False},
    "config_sentence_transformers.json": {
        "prompts": {"query": "query: ", "document": ""},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    },
    **{f"{path}/config.json": said for path, said in MODULES.values() if said is not None},
}


def save_models(root: Path) -> list[Path]:
    """Save tiny models of every task, and with every kind of file."""
    import torch
    from safetensors.torch import load_file
    from sentence_transformers import CrossEncoder

    made = [save_task(task, root / task) for task in TASKS]
    made += [save_task("text-classification", root / kind, kind) for kind in ("roberta", "distilbert", "qwen3", "bart")]
    made.append(save_tiny("bert", "AutoModelForQuestionAnswering", root / "answers"))
    made.append(save_network(root / "pieces", PIECES[-1]))
    CrossEncoder(str(root / "text-ranking"), device="cpu").save_pretrained(str(root / "scores"))
    made.append(root / "scores")
    add_modules(root / "feature-extraction")
    plain = Path(shutil.copytree(root / "token-classification", root / "parts"))
    tensors = load_file(plain / "model.safetensors")
    (plain / "model.safetensors").unlink()
    torch.save(tensors, plain / "pytorch_model-00001-of-00001.bin")
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "pytorch_model-00001-of-00001.bin")}
    write(plain, {"pytorch_model.bin.index.json": index})
    return [*made, plain]


def add_modules(folder: Path) -> None:
    """Add the modules of an embedding model to its network."""
    import torch
    from safetensors.torch import save_file

    write(folder, SETTINGS)
    torch.manual_seed(7)
    dense = {"linear.weight": torch.randn(16, 32) / 8, "linear.bias": torch.randn(16)}
    save_file(dense, folder / "2_Dense/model.safetensors")


def write(folder: Path, files: dict[str, Any]) -> None:
    """Write files of JSON."""
    for name, said in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(said))


def damage(folder: Path, others: Sequence[Path], chosen: random.Random) -> str:
    """Damage one file of a folder; return what was done."""
    path = chosen.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    name = path.relative_to(folder).as_posix()
    kind = chosen.choice(("left out", "cut", "doubled", "swapped", "replaced", *["edited"] * 9))
    content = path.read_bytes()
    if kind == "edited" and path.suffix == ".json" and (said := whole(content)) is not None:
        what = edit(said, chosen)
        path.write_text(json.dumps(said))
        return f"{name}: {what}"
    if kind == "left out":
        path.unlink()
    elif kind == "cut":
        path.write_bytes(content[: chosen.randrange(len(content) + 1)])
    elif kind == "doubled":
        path.write_bytes(content * 2)
    elif kind == "swapped" and (same := [other / name for other in others if (other / name).is_file()]):
        path.write_bytes(chosen.choice(same).read_bytes())
    else:
        path.write_bytes(chosen.choice(CONTENTS))
    return f"{name}: {kind} ({path.read_bytes()[:40]!r})" if path.exists() else f"{name}: {kind}"


def whole(content: bytes) -> Any:
    """Return what a file of JSON says; None if it was damaged before."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def edit(said: Any, chosen: random.Random) -> str:
    """Change one value in an object or a list, often near its top; return what was done."""
    places = list(places_in(said))
    nearest = [place for place in places if len(place) < 3] or places
    if not places:
        return "nothing to change"
    *way, last = chosen.choice(nearest if chosen.random() < 0.8 else places)
    inner = said
    for step in way:
        inner = inner[step]
    if chosen.random() < 0.15:
        del inner[last]
        return f"{[*way, last]} left out"
    inner[last] = chosen.choice(VALUES)
    return f"{[*way, last]} = {inner[last]!r}"


def places_in(said: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value, but for those far down in long lists."""
    inside = list(said.items()) if isinstance(said, dict) else list(enumerate(said)) if isinstance(said, list) else []
    for key, value in inside[:60]:
        yield (*way, key)
        if len(way) < 4:
            yield from places_in(value, (*way, key))


#: Short texts: no damaged bound cuts them.
TEXTS = ("The number is 7.", "tower was gone", "Ada wrote it.")


def expected_of(task: str, folder: Path) -> Any:
    """Return what transformers or sentence-transformers make of the texts; None for other tasks."""
    import torch

    if task == "feature-extraction":
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(folder), device="cpu").float().encode(list(TEXTS)).tolist()
    if task == "text-ranking":
        from sentence_transformers import CrossEncoder

        scores = CrossEncoder(str(folder), device="cpu").float().predict([(TEXTS[0], text) for text in TEXTS])
        return [float(score) for score in scores]
    if task != "text-classification":
        return None
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    fast = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    network = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=False, dtype=torch.float32)
    with torch.inference_mode():
        rows = [network.eval()(**fast(text, return_tensors="pt")).logits[0].tolist() for text in TEXTS]
    return [{str(network.config.id2label[at]): value for at, value in enumerate(row)} for row in rows]


def results_of(artifact: Artifact) -> Any:
    """Return what an artifact makes of the texts, as ``expected_of`` has it; the error if it fails one."""
    task = artifact.manifest.task
    if task == "text-ranking":
        [result] = answer(artifact, [Query(TEXTS[0], orjson.dumps(TEXTS).decode(), RankingOptions())])
        if result["error"] is None:
            return [each["score"] for each in sorted(result["ranking"], key=lambda each: each["index"])]
        return str(result["error"])
    options = EmbeddingOptions() if task == "feature-extraction" else ClassificationOptions(function="none")
    results = answer(artifact, [Query(None, text, options) for text in TEXTS])
    if failed := [result["error"] for result in results if result["error"]]:
        return str(failed[0])
    if task == "feature-extraction":
        return [result["embedding"] for result in results]
    return [{each["label"]: each["score"] for each in result["labels"]} for result in results]
