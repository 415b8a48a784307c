"""Lanes on which model traffic comes in."""
