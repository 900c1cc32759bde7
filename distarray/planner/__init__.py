"""What is done together and how it is cut: keys, stages, cuts, plans and their cache. Pure."""
