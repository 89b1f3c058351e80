"""``python -m vem``."""

import sys

try:
    from vem.cli import main
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(130)

sys.exit(main())
