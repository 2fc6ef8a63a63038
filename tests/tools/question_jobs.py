"""The requests that make jobs of questions."""

from corelane.tasks.forms import forms
from corelane.tasks.question_answering.task import QuestionAnswering
from corelane.tasks.registry import TASKS

QuestionHead, QuestionRequest = (getattr(forms(TASKS[QuestionAnswering.name]), form) for form in ("head", "request"))
