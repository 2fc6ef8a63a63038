"""The commands of question answering."""
