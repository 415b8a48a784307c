"""Cassette services: what an independently deployed service declares, and what is made of it."""
