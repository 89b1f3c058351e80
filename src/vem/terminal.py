r"""Standard streams as the command line needs them: whatever the encoding, whatever the text, whether or not they hold.

Text from files and arguments cannot control the terminal: control characters are shown as ``\x1b``. Letters that the
stream's encoding lacks are shown in the same way.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from vem.errors import printable

_NO_HANDLER = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)


class Stream:
    """A text stream that takes printable text alone and notes the first write that fails; later ones are left out."""

    def __init__(self, stream: TextIO, fail: Callable[[], None] = lambda: None) -> None:
        self.rich_proxied_file = stream  # the name by which rich finds it: its own control sequences are meant
        self.failure: OSError | None = None
        self._fail = fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        """All else is the stream's own."""
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        """Write the text, made printable."""
        self._try(self.rich_proxied_file.write, printable(text, kept="\n\t"))
        return len(text)

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._try(self.rich_proxied_file.flush)

    def _try(self, action: Callable[..., Any], *arguments: str) -> None:
        if self.failure is None:
            try:
                action(*arguments)
            except OSError as error:
                self.failure = error
                self._fail()

    def finish(self) -> None:
        """Write what is left; after a failure nothing is, not even when Python itself ends."""
        self._fail = lambda: None
        self.flush()
        if self.failure is not None and isinstance(self.rich_proxied_file, io.TextIOWrapper):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.rich_proxied_file.fileno())
            os.close(nowhere)


@contextmanager
def standard_streams() -> Iterator[Stream]:
    """Replace the standard output and error by Streams, and yield the output's.

    An output that cannot be written stops the program as Ctrl-C does: what trains saves its state first.
    """
    before = sys.stdout, sys.stderr
    if None in before:  # closed: files that are opened later must not take its place
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(number)
    nowhere = io.StringIO()
    output, errors = Stream(sys.stdout or nowhere, _stop), Stream(sys.stderr or nowhere)
    if sys.stdout is None:
        output.failure = OSError(0, "it is closed; direct it to a file, or to /dev/null")
    sys.stdout, sys.stderr = cast(TextIO, output), cast(TextIO, errors)
    try:
        yield output
    finally:
        errors.finish()
        sys.stdout, sys.stderr = before


def _stop() -> None:
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) not in _NO_HANDLER:
        signal.raise_signal(signal.SIGINT)
    else:
        raise KeyboardInterrupt
