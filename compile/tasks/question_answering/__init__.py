"""Question answering: networks with a head that gives the logits of each token to begin and to end an answer."""
