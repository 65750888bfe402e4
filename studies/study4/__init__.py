"""The fourth study, studies/study4/README.md: does H0 tell only the singular values? 3,200 runs in 8 configurations."""
