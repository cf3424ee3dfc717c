"""From a recipe to trained weights: configuration, optimizers, the loop, states, run directories."""
