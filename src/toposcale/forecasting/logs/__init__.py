"""Logs of training runs: files of many kinds, read as rows, and one curve of them.

The path of a file begins at `loss_curves.read`. A reader makes a `rows.Log` of it: `log_files` (which calls `table_files`,
`json_logs` or `text_logs` by the content), `event_files`, or the state of a Trainer. Each pass changes that log in turn:
`labels` makes columns of the metrics of a long table, `columns` chooses the column of each quantity or asks, `measurements`
drops what was not measured and converts bits, `labels` tells splits and processes apart, and `segments` keeps the rows of
one run. What is left is joined to a `LossCurve`. `names` knows what a name means. Of text logs, `grammars` knows the lines
of programs, `line_forms` what the numbers of any line are; `text_lines` reads them, `step_lines` gives steps that stand on
other lines, and `patterns` reads and suggests the expression of a user.
"""
