"""Token classification: networks with a head that gives the logits of each token's labels."""
