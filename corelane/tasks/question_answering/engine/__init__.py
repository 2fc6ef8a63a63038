"""Extractive question answering: from questions and passages to answers with exact offsets."""
