"""Fine-tuning: questions with known answers in, a model's folder out. A run can be killed at any time.

A killed run goes on to the same weights. Nothing above this room but the commands imports it.
"""
