"""The paper's experiments at small scale; and the cost of layers (`complexity`)."""
