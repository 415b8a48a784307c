"""The private door: turns, transcripts and spans that others captured, into the log."""
