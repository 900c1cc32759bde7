"""What runs on blocks: one record of functions for each family, and the backends that they run on."""
