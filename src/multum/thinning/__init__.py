"""Changing widths: which channels belong together, the rule of every operation, the plan, and the proof."""
