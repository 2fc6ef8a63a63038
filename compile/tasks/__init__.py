"""The compile half of each task: which networks it takes, what they give, and what must be equal once compiled."""
