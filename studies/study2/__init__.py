"""The second study, docs/study-2.md: the leads of the first one on fresh seeds and on a second text, 600 runs."""
