"""The compiler: make a verified artifact from a Hugging Face model.

Start at ``build``: it checks the request, makes a ``plan`` and hands it to ``ladder``, or to a plugin's compiler
(``plugin``). Both compile each bucket, ``verify`` it against the eager model and ``publish`` the folder. Always write
``from compile.build import build``: ``import compile`` would hide the builtin.
"""
