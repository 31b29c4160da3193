"""Reading a network: copies, one traced run, what depends on the member, attributes that hold a width."""
