"""Errors that are the user's to mend, and not ours."""


class UserError(Exception):
    """A mistake in what the user gave: one line that names the thing and says what would be right.

    Scripts print it without a traceback. Mistakes in calling a function stay `ValueError`.
    """


class PassingError(UserError):
    """What a later attempt may do without: a server that did not answer. Nothing is concluded from it."""


class LeftOutError(UserError):
    """A checkpoint that is not measured on purpose, because its weights are those of `original`."""

    def __init__(self, message: str, original: str) -> None:
        super().__init__(message)
        self.original = original
