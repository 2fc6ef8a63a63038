"""Serve the application: Hypercorn's protocols on bounded connections."""
