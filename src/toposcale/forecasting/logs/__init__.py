"""Logs of training runs: files of many kinds, read as rows, and one curve of them."""
