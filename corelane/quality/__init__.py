"""Quality of answers: question files with known answers, scores, and two versions compared. Pure."""
