"""How the scripts of this folder end on bad input."""

from __future__ import annotations

import sys
from collections.abc import Callable

from vem.errors import VemError


def run(main: Callable[[], None]) -> None:
    """Call ``main``; an error that vem raises on purpose is one line and exit code 1, as in the ``vem`` command."""
    try:
        main()
    except (VemError, OSError) as error:
        sys.exit(f"error: {error}")
