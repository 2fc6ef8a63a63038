"""Artifacts: compiled models on disk and at URLs, their manifests, and their calibration."""
