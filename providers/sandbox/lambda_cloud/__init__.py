"""Lambda, served locally."""

from providers.sandbox.lambda_cloud.cloud import LambdaSandbox

__all__ = ["LambdaSandbox"]
