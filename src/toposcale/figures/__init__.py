"""Figures: one function per figure, from tables to a matplotlib Figure. `gallery.py` has their titles and captions."""

from toposcale.figures.gallery import FIGURES, load
