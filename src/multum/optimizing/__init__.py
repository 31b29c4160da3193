"""An ensemble made ready for inference: plain networks, what they share computed once."""
