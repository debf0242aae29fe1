"""TensorDock: virtual machines cut to order at named locations; errors come as 200, and only a delete saves money."""
