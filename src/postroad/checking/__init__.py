"""What is wrong, or will be, with a network that is about to be deployed: lists of findings."""
