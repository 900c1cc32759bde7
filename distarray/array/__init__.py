"""What the user holds: handles on expressions, numpy's surface around them, and the doors to other libraries."""
