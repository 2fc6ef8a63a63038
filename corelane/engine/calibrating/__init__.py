"""Fit a calibration on a model's answers to a file's questions."""
