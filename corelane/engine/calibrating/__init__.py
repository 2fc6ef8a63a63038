"""Fit a calibration on what a model answers to a file's questions."""
