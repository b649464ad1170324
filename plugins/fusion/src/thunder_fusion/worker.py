"""The process that compiles regions for another one: ``python worker.py REQUEST ANSWER``.

Both arguments are descriptors of open files. Standard input is a pipe from the other process; when it is closed, that
process has ended, and this one ends with the compilers that it started. The file imports nothing before it watches.
"""

from __future__ import annotations

import marshal
import os
import pickle
import signal
import sys
import threading


def _end_with_caller() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGTERM)


def main() -> None:
    """Answer one request."""
    threading.Thread(target=_end_with_caller, daemon=True).start()
    os.nice(5)  # the program that waits runs meanwhile
    request, answer = map(int, sys.argv[1:])
    with open(request, "rb") as file:
        asked = pickle.load(file)
    answers = asked.answers()
    with open(answer, "wb") as file:
        marshal.dump(answers, file)


if __name__ == "__main__":
    main()
