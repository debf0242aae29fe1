"""RunPod: REST v2 for everything, GraphQL for the balance only, which v2 does not have."""

from providers.clouds.runpod.adapter import CAPABILITIES, RunPodConfig, RunPodProvider

__all__ = ["CAPABILITIES", "RunPodConfig", "RunPodProvider"]
