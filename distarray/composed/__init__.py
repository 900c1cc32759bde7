"""Here are the functions that users call: numpy's, the standard's and distarray's own, made of each other."""
