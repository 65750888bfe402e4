"""Figures: one function per figure, from tables to a matplotlib Figure. `registry.py` has their titles and captions."""

from toposcale.figures.registry import FIGURES, load
