"""Figures of the papers, drawn from our own numbers in the house's colours.

`items` says what is drawn; the others draw.
"""
