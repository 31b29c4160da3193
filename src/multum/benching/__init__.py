"""How long and how much memory: any network, every method, every executor and some peers, in units of one network."""
