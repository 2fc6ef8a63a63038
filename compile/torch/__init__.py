"""TorchScript for the CPU (``cpu``), and the layers that make it fast."""
