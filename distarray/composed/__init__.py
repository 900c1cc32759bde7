"""The functions that users call on arrays and that are made of others: numpy's and the standard's, and distarray's."""
