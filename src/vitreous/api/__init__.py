"""The Python API: one function for each command, with typed results. The command line stands on it."""
