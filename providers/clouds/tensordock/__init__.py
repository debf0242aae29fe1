"""TensorDock: virtual machines cut to order at named locations; errors come as 200, and only a delete saves money."""

from providers.clouds.tensordock.adapter import CAPABILITIES, TensorDockConfig, TensorDockProvider

__all__ = ["CAPABILITIES", "TensorDockConfig", "TensorDockProvider"]
