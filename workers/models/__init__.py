"""The models of one core: which are wanted, which are loaded, and the steps between."""
