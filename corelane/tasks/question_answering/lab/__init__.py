"""What `corelane bench` knows of question answering (``corelane.plugins.lab.workload``)."""

from corelane.tasks.question_answering.lab.questions import QuestionBench

BENCH = QuestionBench
