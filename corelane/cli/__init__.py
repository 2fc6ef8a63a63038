"""The command line.

``app`` puts it together. Each command is one module. A library that takes long to import is imported by the command
that needs it.
"""
