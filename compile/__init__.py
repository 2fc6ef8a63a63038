"""The compiler: from a Hugging Face question-answering model to a verified artifact.

``build`` leads through it: source (find and digest the files), model (load and check them), trial (choose a dtype by
measuring), cpu (trace and freeze), verify (against the eager model), folder (write aside, then rename). Always
``from compile.build import build``: ``import compile`` would hide the builtin.
"""
