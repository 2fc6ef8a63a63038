"""A handler with scikit-learn: TF-IDF and a linear model, fitted beforehand and loaded once by each core.

Fit it, ask it without a service, and serve it, in this folder:

    python topics.py
    corelane run topics:Topics '{"text": "My parcel never came"}' -O most=2
    corelane serve --handler topics:Topics
"""

from pathlib import Path

import joblib
from pydantic import BaseModel, Field
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from corelane import Handler

#: What `setup` loads. In the folder of a package, the digest of each version covers such a file too.
FITTED = Path(__file__).with_name("topics.joblib")

TEXTS = {
    "delivery": ["The parcel came late", "It never came", "The driver left my parcel outside", "Still not shipped"],
    "price": ["Far too dear", "I was charged twice", "Cheaper elsewhere", "Please refund my money"],
    "quality": ["The screen is cracked", "It broke after a day", "Splendid sound", "The seam came apart"],
}


class Topic(BaseModel):
    topic: str
    score: float


class Topics(Handler):
    class Input(BaseModel):
        text: str

    class Output(BaseModel):
        topics: list[Topic]

    class Options(BaseModel):
        most: int = Field(1, ge=1, description="How many topics to give, the likeliest first.")

    def setup(self, core: object) -> None:
        self.model = joblib.load(FITTED)

    def predict(self, items: list[Input], options: Options) -> list[dict[str, list[Topic]]]:
        rows = self.model.predict_proba([item.text for item in items])  # the whole batch at once
        best = [row.argsort()[::-1][: options.most] for row in rows]
        return [
            {"topics": [Topic(topic=self.model.classes_[place], score=row[place]) for place in places]}
            for row, places in zip(rows, best, strict=True)
        ]


if __name__ == "__main__":
    pairs = [(text, topic) for topic, texts in TEXTS.items() for text in texts]
    joblib.dump(make_pipeline(TfidfVectorizer(), LogisticRegression(C=10)).fit(*zip(*pairs, strict=True)), FITTED)
