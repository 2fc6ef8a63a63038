"""Planning: how many cores of which instance a load needs, simulated from measured times."""
