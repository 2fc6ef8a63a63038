"""The peers' servers, one module each, run in their own virtual environments. They know nothing of Corelane but the
model file.
"""
