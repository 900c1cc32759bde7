"""What the user holds: handles on expressions, when they are computed, and the doors to other libraries."""
