"""What is to be computed: operations, immutable nodes, lenses, and the doors that make nodes. Pure."""
