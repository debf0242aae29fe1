"""TensorDock, served locally."""

from providers.sandbox.tensordock.sandbox import TensorDockSandbox

__all__ = ["TensorDockSandbox"]
