"""What providers' answers mean, read from their bytes."""
