"""The decisions of docs/decisions.md: what each policy gives up where the loss of every alternative is known."""
