"""Text classification: networks with a head that gives the logits of a row's labels."""
