from pydantic import BaseModel

from corelane import Handler

GOOD, BAD = {"clean", "good", "great", "kind"}, {"bad", "dirty", "late", "rude"}


class Sentiment(Handler):
    class Input(BaseModel):
        text: str

    class Output(BaseModel):
        label: str

    def predict(self, items: list[Input]) -> list[dict[str, str]]:
        words = [set(item.text.lower().split()) for item in items]
        return [{"label": "good" if len(each & GOOD) >= len(each & BAD) else "bad"} for each in words]
