"""A source model, and the samples on which a compiled model is compared with it.

``source`` finds the files, ``loading`` loads and checks them, ``reference`` wraps the eager network. ``probes`` and
``evaluation`` turn texts into batches, ``timing`` measures.
"""
