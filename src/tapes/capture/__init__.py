"""What happens on the wire, into the log."""
