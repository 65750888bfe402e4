"""Decisions on a training run: candidates, expected regret, confidence, and wording."""
