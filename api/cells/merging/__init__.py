"""What several cells answered, made one answer: pages of lists, and how the service stands. Pure, on the API's JSON."""
