"""The ``vem`` command, and ``python -m vem``."""

import sys


def main() -> int:
    """Run the command line and return its exit code; Ctrl-C is one line, however early it comes."""
    try:
        from vem.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
