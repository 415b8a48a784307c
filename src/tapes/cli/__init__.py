"""The command line: what a person types, one library call each."""
