"""A package of handlers, as an operator would install one."""
