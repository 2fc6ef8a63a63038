"""Run artifacts on AWS Neuron cores."""
