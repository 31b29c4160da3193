"""Changing a layer: the one walker, norm, dropout, scaled and generated weights."""
