"""Stand-in for torch_neuronx (inf2, trn1, trn2, trn3). `tracer.py probe` asks for versions, and whether it traces: it
is told without the two seconds that importing torch takes. TorchNeuron has the same name and no `trace`.
"""

import os
import sys

__version__ = "2.9.0.2.15.32035+standin"

if os.environ.get("NEURON_STAND_IN_FAULT") == "torchneuron":
    __version__ = "2.14.3.0+standin"
elif sys.argv[1:2] == ["probe"]:
    trace = analyze = None
else:
    from torch_neuronx.tracing import analyze as analyze
    from torch_neuronx.tracing import trace as trace
