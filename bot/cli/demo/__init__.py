"""The commands of the stage: the demo, and the sandbox clouds and the practice workspace alone."""
