"""The null of docs/statistics.md: how often each test finds what cannot be there, and how often what is there."""
