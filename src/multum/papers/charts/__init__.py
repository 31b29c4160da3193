"""Figures of the papers, drawn from our own numbers in the house's colours.

`items` says what is drawn, and is imported with the papers; the others draw, and bring matplotlib.
"""
