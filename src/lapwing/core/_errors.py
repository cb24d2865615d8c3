"""The base of all errors that are a message for the user."""


class LapwingError(Exception):
    """An error whose text is one sentence that the user can act on.

    The command line prints the sentence alone and exits with status 2. Any other exception is a bug and keeps its
    traceback.

    >>> issubclass(LapwingError, ValueError)
    False
    """
