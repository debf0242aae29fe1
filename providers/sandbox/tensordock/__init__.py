"""TensorDock, served locally."""
