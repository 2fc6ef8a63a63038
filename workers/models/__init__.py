"""The models of one core: what is wanted, what is loaded, and the steps between."""
