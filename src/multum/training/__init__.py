"""Training: a recipe, one visible loop, checkpoints that resume to the bit."""
