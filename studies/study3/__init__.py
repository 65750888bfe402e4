"""The third study, docs/study-3.md: topology or spectrum? 664 runs in 17 configurations, of 3K to 301K parameters."""
