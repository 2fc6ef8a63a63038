"""Planning: how many cores of which instance a load needs, by measured and published times and a formula."""
