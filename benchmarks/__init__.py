"""Speed as ratios measured in one run, side by side with what it is held against. No timed tests."""
