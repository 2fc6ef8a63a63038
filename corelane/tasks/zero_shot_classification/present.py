"""What pages show of texts that are classified by the caller's own labels."""

from corelane.tasks.text_classification.present import LabelsPresenter


class OwnLabelsPresenter(LabelsPresenter):
    """Shows labels as classification does."""

    about = "One text, and labels of your own. The model says how well each of them fits."
