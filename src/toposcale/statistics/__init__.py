"""Correlations, tests and their corrections: arrays in, arrays out (numpy and scipy; ruptures for `change_points`).

Following: `coefficients`, `resampling`. Tests of one run: `testable`, `prewhitening`; of several: `shared_flips`,
`run_permutation`, `between_runs` (both by `permutations`); corrected by `multiple_testing`. Also `scaling`, `change_points`
and `patience`. docs/statistics.md says what each test can and cannot show.
"""
