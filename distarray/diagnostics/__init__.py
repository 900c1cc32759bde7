"""How it is computed, for people to read: plans explained, shardings drawn. Nothing here runs unless asked to."""
