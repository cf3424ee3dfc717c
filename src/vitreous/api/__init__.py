"""The Python API: one function for each command, with typed results. The command line is built on it."""
