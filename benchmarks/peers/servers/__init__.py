"""The peers' servers, one module each, run in their own virtual environments. Of Corelane they know
only the model file.
"""
