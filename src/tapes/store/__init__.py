"""The log and its read model: one store, two databases."""
