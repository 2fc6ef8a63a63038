"""A source model, and the questions that a compiled one is compared with it on.

``source`` finds the files, ``loading`` loads and checks them, ``reference`` wraps the eager network. ``probes`` and
``evaluation`` turn texts into batches, ``timing`` measures.
"""
