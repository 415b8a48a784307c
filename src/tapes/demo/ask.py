"""Asks about a ticket, answered from a tape: `python -m tapes.demo.ask TAPE TICKET`.

A process of its own, so that one can see how a miss ends it.
"""

import sys

from tapes.demo.conversation import client, stream, ticket
from tapes.using import use


def main(tape: str, text: str) -> None:
    """Print the answer; a request that is not on the tape ends the process."""
    with use(tape, "replay"):
        for piece in stream(client(), ticket(text)):
            sys.stdout.write(piece)


if __name__ == "__main__":
    main(*sys.argv[1:])
