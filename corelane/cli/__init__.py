"""The command line. ``app`` puts it together, and each command is one module. Slow libraries are imported by the
command that needs them.
"""
