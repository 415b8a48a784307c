"""What the pytest plugin does once a test asks for a tape. Knows nothing of pytest."""
