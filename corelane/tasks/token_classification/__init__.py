"""Token classification: the entities in a text, with their places."""
