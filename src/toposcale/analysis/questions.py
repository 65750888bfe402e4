"""Answers to the questions that are asked of every feature, and their thresholds; `CONTROLS` has the questions."""

LEVEL = 0.05
"""A question that is tested is answered yes where q is at most this."""
FOLLOWS_RHO = 0.5
"""A feature follows the metric where the Spearman correlation is at least so large, with one sign in every
configuration."""
YES, NO, NOT_TESTED = "yes", "no", "not tested"
