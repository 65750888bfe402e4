"""The one error that is the user's to mend."""


class UserError(Exception):
    """A mistake in what the user gave: one line that names the thing and says what would be right.

    Scripts print it without a traceback. Mistakes in calling a function stay `ValueError`.
    """
