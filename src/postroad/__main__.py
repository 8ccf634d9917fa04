"""The command `postroad`, also as `python -m postroad`: an interrupt is one line from the start."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from postroad.cli import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("postroad: interrupted\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
