"""Why is it not learning? Checks of a run's course and of its model; each finding has its fix."""
