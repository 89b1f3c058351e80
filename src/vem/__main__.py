"""``python -m vem``."""

import sys

from vem.cli import main

sys.exit(main())
