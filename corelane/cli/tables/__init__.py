"""Tables as input and output of ``corelane run`` and ``batch``."""
