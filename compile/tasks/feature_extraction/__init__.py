"""Feature extraction: networks whose vectors of a row's tokens become one vector."""
