"""The history of the tables: one chain of revisions for both databases."""
