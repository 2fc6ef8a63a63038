"""Compiling for AWS Neuron: inf2, trn1, trn2 (torch_neuronx) and inf1 (torch_neuron).

``build`` leads through it. Nothing in this process imports a Neuron package: tracing takes cores until its process
ends, a compiler may be killed for its memory, and inf1 needs an older Python and torch. So ``tracer.py``, a script
that needs nothing of Corelane, runs in children (``children``), in whichever interpreter has the packages.
"""
