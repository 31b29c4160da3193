"""How a network is changed: the tree walker, the tracer of channels, and `thin`."""
