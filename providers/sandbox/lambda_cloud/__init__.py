"""Lambda, served locally."""

from providers.sandbox.lambda_cloud.sandbox import LambdaSandbox

__all__ = ["LambdaSandbox"]
