"""Figures: one function per figure, from tables to a matplotlib Figure. `registry.py` has their titles and captions."""

from toposcale.figures.registry import FIGURES, FigureEntry, load, title_of

__all__ = ["FIGURES", "FigureEntry", "load", "title_of"]
