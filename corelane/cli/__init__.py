"""The command line. ``app`` puts it together, each command is one module, and libraries that take long to import are
imported by the command that needs them.
"""
