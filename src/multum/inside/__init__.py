"""What members are made of: landscapes between them, their paths in training, the units that serve each input."""
