"""``python -m thunder`` is the command ``thunder``."""

import sys

from thunder.command_line.main import main

if __name__ == "__main__":
    sys.exit(main())
