"""A real recorded conversation, to be seen replayed: the tape, and the calls that it answers."""
