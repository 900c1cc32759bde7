"""Plans to tasks: pure functions of plans, graphs and what is known of the machine."""
