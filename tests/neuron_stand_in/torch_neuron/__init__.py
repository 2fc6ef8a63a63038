"""The stand-in for AWS' package of this name (see ../README.md): its runtime half."""

import neuron_runtime

neuron_runtime.install()
