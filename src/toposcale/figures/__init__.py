"""Figures: one function per figure, from tables to a matplotlib Figure. Titles and captions stand in `gallery.py`."""

from toposcale.figures.gallery import FIGURES, load
