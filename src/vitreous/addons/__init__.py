"""What is added to the core: a folder each, which imports the core, and which nothing imports. The core knows
them by the rows of `vitreous.extensions.ADDONS`."""
