"""Where elements live: meshes, teams, cuts, layouts, the distributed type and the rules of operations.

A pure layer: it imports neither Dask nor CuPy, knows no expression and moves nothing.
"""
