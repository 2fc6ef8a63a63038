"""Stand-in for torch_neuron (inf1). `tracer.py probe` asks for versions, and whether it traces: it is told without
the two seconds that importing torch takes.
"""

import sys

__version__ = "1.13.1.2.11.13.0+standin"

if sys.argv[1:2] == ["probe"]:
    trace = load = None
else:
    from torch_neuron.tracing import load as load
    from torch_neuron.tracing import trace as trace
