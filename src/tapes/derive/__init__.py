"""What raw turns mean: sessions, traces, spans and links."""
