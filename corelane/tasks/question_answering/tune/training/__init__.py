"""Fine-tuning: questions with known answers in, a model's folder out. A run can be killed at any time.

A killed run resumes and ends with the same weights. Only the commands import this package.
"""
