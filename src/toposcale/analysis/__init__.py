"""Analyses: from the tables of a run to further tables. `registry.py` lists them, with what each reads and makes."""

from toposcale.analysis.registry import ANALYSES, Analysis, load
