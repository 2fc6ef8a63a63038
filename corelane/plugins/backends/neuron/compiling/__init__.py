"""Compile for AWS Neuron: inf2, trn1, trn2, trn3 (torch_neuronx) and inf1 (torch_neuron).

``build`` is the way in. Nothing in this process imports a Neuron package: tracing holds cores until its process ends,
a compiler may be killed for its memory, and inf1 needs an older Python and torch. So ``tracer.py``, a script without
a line of Corelane in it, runs in child processes (``children``) of the interpreter that has the packages.
"""
