"""TensorDock, served locally."""

from providers.sandbox.tensordock.cloud import TensorDockSandbox

__all__ = ["TensorDockSandbox"]
