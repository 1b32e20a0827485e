"""Real inputs through the library: each graph drawn, run, and verified against its dense twin. See
``--help``.
"""

import os
import sys


def start() -> int:
    """Run the demo, on a machine that may be busy with other work."""
    # torch reads it at import: idle threads sleep, not spin
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from play import main

    return main()


if __name__ == "__main__":
    sys.exit(start())
