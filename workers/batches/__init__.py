"""The batch loop: carry file batches on from step to step."""
