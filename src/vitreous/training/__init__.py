"""From a recipe to trained weights: configuration, optimisers, the loop, states, run directories."""
