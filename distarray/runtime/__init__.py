"""What runs tasks and holds their results: executors, clusters, memory, and the door that evaluation goes through."""
