"""Training what gives each pixel a class."""
