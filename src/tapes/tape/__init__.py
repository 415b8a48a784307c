"""Stores of exchanges by key: one interface, three homes."""
