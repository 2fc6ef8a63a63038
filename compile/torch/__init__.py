"""TorchScript for the CPU (``cpu``) and for NVIDIA GPUs (``cuda``), and the layers that make it fast."""
