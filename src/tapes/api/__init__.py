"""The read API: what the log and its read model hold, over HTTP."""
