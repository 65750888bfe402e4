"""Speed as ratios measured in one run, side by side with what it is compared with. No timed tests."""
