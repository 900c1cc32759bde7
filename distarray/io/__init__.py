"""Files and other libraries' arrays."""
