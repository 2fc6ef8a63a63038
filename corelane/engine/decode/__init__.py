"""From logits to answers: spans, candidates, whole characters, offsets."""
