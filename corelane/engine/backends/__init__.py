"""Run compiled artifacts on one core: a protocol and one file per backend."""
