"""Recordings that come from other tools, and tapes that go there."""
