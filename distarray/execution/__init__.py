"""How it runs: tasks, kernels, routes, executors, placement. The only layer that imports Dask and CuPy."""
