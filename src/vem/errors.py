"""The one family of errors: each says what was found, what was expected, and what to do."""


def printable(text: str) -> str:
    r"""The text in one line that a terminal only shows: control characters and their like as ``\x1b``, ``\n``.

    Names that come from files go through it on their way into reports, comments and messages.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class VemError(Exception):
    """Base of every error that ``vem`` raises on purpose."""


class DataError(VemError):
    """A dataset, a file or an array that cannot be used as it is."""


class SettingsError(VemError):
    """A setting, or a combination of settings, that means nothing."""


class DivergenceError(VemError):
    """Training left the finite or the plausible numbers."""


class RunError(VemError):
    """A run directory, a checkpoint or a policy file that cannot be used."""


class SimulatorError(VemError):
    """An environment that is unknown, not installed, or does not fit the policy."""


class MissingPackageError(VemError, ImportError):
    """A package that an extra installs and that is not here."""


class DataWarning(UserWarning):
    """Something in the data that is legal and probably not meant."""


class Stopped(KeyboardInterrupt):
    """Training was asked to stop (Ctrl-C, SIGTERM) and has saved its state; the text says how to go on."""
