"""Search the passages by LangChain, which takes the service for a Text Embeddings Inference.

Take `pip install "langchain-huggingface<1.2.2"` (later ones take no address of a server) and the address of a model, in
this folder:

    python langchain_tei.py http://127.0.0.1:8000/tei/all-minilm-l6-v2 "how to look after a household appliance"
"""

import sys
from pathlib import Path

from langchain_core.vectorstores import InMemoryVectorStore
from langchain_huggingface import HuggingFaceEndpointEmbeddings

address, sought = sys.argv[1:]
texts, places = [], []
for file in sorted(Path(__file__).parent.glob("passages/*.txt")):
    for number, paragraph in enumerate(file.read_text(encoding="utf-8").split("\n\n")):
        texts.append(paragraph)
        places.append({"place": f"{file.stem} {number}"})
# A paragraph that is longer than the model reads would be refused without `truncate`, which cuts its end.
vectors = HuggingFaceEndpointEmbeddings(model=address, model_kwargs={"truncate": True})
store = InMemoryVectorStore.from_texts(texts, vectors, places)
for found, score in store.similarity_search_with_score(sought, k=3):
    print(f"{score:.2f} {found.metadata['place']}: {found.page_content[:80]!r}")
