"""Lambda: whole virtual machines at fixed prices, no stop, and room for one launch in twelve seconds."""

from providers.clouds.lambda_cloud.adapter import CAPABILITIES, LambdaConfig, LambdaProvider

__all__ = ["CAPABILITIES", "LambdaConfig", "LambdaProvider"]
