"""Logs of training runs: files of many kinds, read as rows, and one curve of them.

The path of a file begins at `loss_curves.read`. A reader makes `rows.Rows` of it: `log_files` (which calls `table_files`,
`json_logs` or `text_logs` by the content), `event_files`, or the state of a Trainer. `loss_curves.one_run` makes one curve
of any rows: `choices` chooses the columns of step and losses, and their unit, or asks; `loss_curves` leaves out what was
not measured; `groups` tells splits, processes and runs apart. Each pass returns series, and none changes another's. `names`
knows what a name means. Of text logs, `grammars` knows the lines of programs, `line_forms` what the numbers of any line
are; `text_logs` makes rows of the lines of one program, `trainer_bars` gives those of transformers' Trainer their steps,
and `patterns` reads and suggests the expression of a user.
"""
