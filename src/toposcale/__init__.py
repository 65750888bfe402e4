"""Topology of language models in training, beside the plain baselines it has to beat."""

__version__ = "0.1.0"
