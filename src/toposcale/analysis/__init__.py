"""Analyses: from the tables of a run to further tables. `analyses.py` lists them, with what each reads and makes."""

from toposcale.analysis.analyses import ANALYSES, Analysis
