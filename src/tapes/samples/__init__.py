"""Sample sessions: something to look at before anything was captured."""
