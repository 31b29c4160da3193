"""What an ensemble predicts, and what its uncertainty is worth."""
