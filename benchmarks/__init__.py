"""Measurements: each script one question, one run, ratios that hold on noisy machines."""
